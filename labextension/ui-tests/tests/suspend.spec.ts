/** A notebook that is suspended, whose slices another one uses, and that is resumed from the sidebar; or that is kept. */
import {
  connect,
  disconnect,
  expect,
  faults,
  indicator,
  newNotebook,
  openPanel,
  picture,
  section,
  slice,
  start,
  test,
  THEMES
} from './helpers';

const CONNECT = `%load_ext pathways_jupyter
%pathways connect --local --tpu tpuv6e:2x2=2
import jax.numpy as jnp
w = jnp.arange(8.0)
state = [w]
`;
const WAIT = `import pathlib, time
while not pathlib.Path("go").exists(): time.sleep(0.05)`;

test('a suspended notebook says what is saved, and is resumed by keyboard behind a cell that runs', async ({
  page
}) => {
  await newNotebook(page, 'train.ipynb');
  const panel = await openPanel(page);
  const session = panel.locator('.pw-session');
  await start(page, CONNECT);
  await expect(session).toHaveAttribute('data-state', 'connected');
  await start(page, '%pathways suspend --yes');
  await expect(session).toHaveAttribute('data-state', 'suspended');
  await expect(session.getByRole('status').first()).toContainText('Suspended, arrays are saved');
  await expect(session).toContainText('1 array (32 bytes) in gs://');
  await expect(session).toContainText(/gs:\/\/\S+\/saved\/\S+\/suspended-\w+/);
  await expect(section(panel, 'slices')).toContainText('2 free');
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
  for (const [theme, look] of THEMES.slice(0, 2)) {
    await page.theme.setTheme(theme);
    await expect.poll(() => faults(page, '#pathways-jupyter-panel')).toEqual([]);
    await picture(page, `state-suspended-${look}`);
  }

  await newNotebook(page, 'other.ipynb');
  await connect(page, panel);
  await disconnect(page, panel);
  await page.notebook.activate('train.ipynb');
  await expect(session).toHaveAttribute('data-state', 'suspended');

  await start(page, WAIT);
  await expect(indicator(page)).toHaveAttribute('data-status', 'busy');
  await panel.getByRole('button', { name: 'Disconnect' }).focus();
  await page.keyboard.press('Tab');
  await expect(panel.getByRole('button', { name: 'Resume' })).toBeFocused();
  await page.keyboard.press('Enter');
  const toasts = page.locator('.Toastify__toast', { hasText: 'train.ipynb' });
  await expect(toasts).toContainText('Resuming train.ipynb, after the cells that are running…');
  await page.keyboard.press('Enter');
  // A cell that was started after it needs the arrays.
  await start(page, 'print(f"{w.sum():.0f}", state[0] is w)');
  await expect(session).toHaveAttribute('data-state', 'suspended');
  const folder = await page.filebrowser.getCurrentDirectory();
  await page.contents.uploadContent('', 'text', `${folder}/go`);
  await expect(page.locator('.jp-NotebookPanel:visible .jp-OutputArea').last()).toHaveText('28 True');
  await expect(toasts).toContainText(/train\.ipynb is resumed: 1 array \(32\sB\) is where it was\./);
  await expect(session).toHaveAttribute('data-state', 'connected');
  await expect(panel.getByRole('button', { name: 'Resume' })).toHaveCount(0);
  await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
  await disconnect(page, panel);
});

test('a page that is closed while a session holds slices without a limit is asked about, once', async ({ page }) => {
  await newNotebook(page, 'leaving.ipynb');
  const panel = await openPanel(page);
  const session = panel.locator('.pw-session');
  await start(page, CONNECT);
  await expect(session).toHaveAttribute('data-state', 'connected');
  const asked: string[] = [];
  page.on('dialog', dialog => {
    asked.push(dialog.type());
    void dialog.dismiss();
  });
  await page.close({ runBeforeUnload: true });
  const toast = page.locator('.Toastify__toast', { hasText: 'also while this window is closed' });
  await expect(toast).toContainText('leaving.ipynb holds 2 slices also while this window is closed, without a limit.');
  expect(asked).toEqual(['beforeunload']);
  await picture(page, 'leaving');
  await toast.getByRole('button', { name: 'Suspend' }).click();
  await expect(session).toHaveAttribute('data-state', 'suspended');
  await disconnect(page, panel);
});

test('with the mouse only a notebook is suspended after its cell, resumed on fewer slices, and its save is named', async ({
  page
}) => {
  await newNotebook(page, 'mouse.ipynb');
  const panel = await openPanel(page);
  const session = panel.locator('.pw-session');
  const toasts = page.locator('.Toastify__toast', { hasText: 'mouse.ipynb' });
  const button = (name: string) => session.getByRole('button', { name, exact: true });
  await start(page, CONNECT);
  await expect(session).toHaveAttribute('data-state', 'connected');
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
  await start(page, WAIT);
  await expect(indicator(page)).toHaveAttribute('data-status', 'busy');
  await button('Suspend').click();
  await expect(toasts).toContainText('mouse.ipynb is suspended after the cell that runs…');
  await picture(page, 'suspend-after-the-cell');
  await expect(session).toHaveAttribute('data-state', 'connected');
  const folder = await page.filebrowser.getCurrentDirectory();
  await page.contents.uploadContent('', 'text', `${folder}/go`);
  await expect(toasts).toContainText(/mouse\.ipynb is suspended, its slices are free: 1 array \(32\sB\) is saved\./);
  await expect(session).toHaveAttribute('data-state', 'suspended');
  await expect(session).not.toContainText('Distance');

  await newNotebook(page, 'taker.ipynb');
  await start(page, CONNECT.replace('=2', '=1'));
  await expect(session).toHaveAttribute('data-state', 'connected');
  await page.notebook.activate('mouse.ipynb');
  await expect(session).toHaveAttribute('data-state', 'suspended');
  await expect(session).toContainText('1 of the 2 slices that it had is free.');
  await expect(button('Resume when free')).toBeVisible();
  for (const [theme, look] of THEMES.slice(0, 2)) {
    await page.theme.setTheme(theme);
    await picture(page, `suspend-few-${look}`);
  }
  // As from the palette, which does not look at what is free.
  await page.evaluate(() => void window.jupyterapp.commands.execute('pathways-jupyter:resume'));
  await expect(toasts.last()).toContainText('mouse.ipynb could not be resumed.');
  await expect(toasts.last().getByRole('button')).toContainText(['Resume when free', 'Resume on 1 slice']);
  await picture(page, 'suspend-resume-failed');
  await button('Resume on 1 slice').click();
  await expect(session).toHaveAttribute('data-state', 'connected');
  await expect(toasts.filter({ hasText: 'could not be resumed' })).toHaveCount(0);
  await start(page, 'print(f"{w.sum():.0f}", state[0] is w)');
  await expect(page.locator('.jp-NotebookPanel:visible .jp-OutputArea').last()).toHaveText('28 True');

  await button('Suspend').click();
  await expect(session).toHaveAttribute('data-state', 'suspended');
  const [save] = /suspended-[0-9a-f]+(-\d+)?/.exec((await session.textContent())!)!;
  await button('Disconnect').click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText(save);
  await picture(page, 'suspend-disconnect');
  await dialog.getByRole('button', { name: 'Disconnect' }).click();
  await expect(toasts.last()).toContainText(`Its arrays stay saved: “%pathways load ${save}” sets them.`);
  await page.notebook.activate('taker.ipynb');
  await disconnect(page, panel);
});

test('a notebook that is about to be suspended says so, and is kept by keyboard', async ({ page }) => {
  await newNotebook(page, 'idle.ipynb');
  const panel = await openPanel(page);
  const session = panel.locator('.pw-session');
  await start(page, CONNECT.replace('=2', '=1 --suspend-after 60'));
  await expect(session).toHaveAttribute('data-state', 'connected');
  const soon = session.getByRole('status').filter({ hasText: /Nothing is computed: suspends at \d+:\d\d:\d\d/ });
  const card = page.locator('.jp-NotebookPanel:visible .jp-OutputArea .pw-card').first();
  const question = page.locator('.Toastify__toast', { hasText: 'idle.ipynb: Nothing is computed: suspends at ' });
  await expect(soon).toContainText('unless a cell runs before.');
  await expect(card).toContainText(/Nothing is computed: suspends at \d+:\d\d:\d\d, unless a cell runs before\./);
  await expect(question.getByRole('button')).toContainText(['Suspend', 'Keep', 'Disconnect']);
  await picture(page, 'suspend-question');
  await expect.poll(() => faults(page, '#pathways-jupyter-panel')).toEqual([]);
  const keep = session.getByRole('button', { name: 'Keep' });
  await session.getByRole('button', { name: 'Logs' }).focus();
  await page.keyboard.press('Tab');
  await expect(keep).toBeFocused();
  await page.keyboard.press('Enter');
  for (const gone of [soon, keep, question]) {
    await expect(gone).toHaveCount(0);
  }
  await expect(card).not.toContainText('suspends at');
  await expect(session).toHaveAttribute('data-state', 'connected');
  await start(page, 'print(f"{w.sum():.0f}")');
  await expect(page.locator('.jp-NotebookPanel:visible .jp-OutputArea').last()).toHaveText('28');
  await disconnect(page, panel);
});

test('over a night, with the keyboard only: suspended, without its kernel, loaded in the morning', async ({ page }) => {
  const panel = await openPanel(page);
  const session = panel.locator('.pw-session');
  await newNotebook(page, 'night.ipynb');
  const output = page.locator('.jp-NotebookPanel:visible .jp-OutputArea-output').last();
  const run = async (code: string): Promise<void> => {
    await page.keyboard.press('Enter');
    await page.keyboard.insertText(code);
    await page.keyboard.press('Shift+Enter');
  };
  await run(CONNECT);
  await expect(session).toHaveAttribute('data-state', 'connected');
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
  await page.keyboard.press('Control+Shift+c');
  await page.keyboard.insertText('Suspend This Notebook');
  await page.keyboard.press('Enter');
  await expect(session).toHaveAttribute('data-state', 'suspended');

  await run('import os; os.kill(os.getpid(), 9)');
  await expect(page.getByRole('dialog')).toContainText('It will restart automatically');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await expect(section(panel, 'session')).toContainText('night.ipynb is not connected.');
  await run('%load_ext pathways_jupyter\n%pathways resume');
  await expect(output).toContainText(/This notebook has a save from .*, 3 variables, .*: %pathways load --last/);
  await picture(page, 'suspend-morning');
  await run('%pathways connect --local --tpu tpuv6e:2x2=2\n%pathways load --last');
  await expect(session).toHaveAttribute('data-state', 'connected');
  await run('print(f"{w.sum():.0f}", state[0] is w)');
  await expect(output).toHaveText('28 True');
  await disconnect(page, panel);
});
