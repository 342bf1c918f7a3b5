/** What the panel and a card say is true at every moment, and an action that fails says so. */
import { Locator } from '@playwright/test';

import {
  disconnect,
  expect,
  indicator,
  listen,
  newNotebook,
  openPanel,
  picture,
  proxies,
  reload,
  section,
  slice,
  start,
  test,
  VISITED
} from './helpers';

const CONNECT = '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2';
const FAULT = {
  message: 'The Jupyter server failed to do this (ValueError: a fault).',
  hint: `It did it ${'again and '.repeat(10)}again. See its log.`
};

/** Return what the card of a session shows beside its id, and the colour of its edge. */
function look(card: Locator): Promise<[string, string]> {
  return card.evaluate(node => {
    const words = node.querySelector('.pw-once');
    const drawn = words && getComputedStyle(words, '::after').content;
    const tone = getComputedStyle(node).getPropertyValue('--pw-tone');
    const named = (name: string) => getComputedStyle(node).getPropertyValue(name).trim();
    return [
      drawn && drawn !== 'none' ? drawn.replace(/"/g, '') : (words?.textContent ?? ''),
      tone.trim() === named('--pw-ok') ? 'ok' : 'other'
    ];
  });
}

for (const [theme, name] of VISITED) {
  test(`from a cell that connects to a kernel that is killed, nothing false is shown (${name})`, async ({ page }) => {
    await page.theme.setTheme(theme);
    await newNotebook(page, 'truth.ipynb');
    const panel = await openPanel(page);
    const session = panel.locator('.pw-session');
    await expect(section(panel, 'slices')).toContainText('2 slices, 2 ready, 2 free');
    const said = await listen(page);
    await start(page, CONNECT);
    // Also where it is over by the time that a busy machine looks.
    let before = '';
    await expect.poll(async () => (before += await said())).toMatch(/A cell connects truth\.ipynb…|Connecting/);
    await expect(session).toHaveAttribute('data-state', 'connected');
    await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
    expect(await said()).not.toContain('is not connected');

    // The card is live where it was drawn last, and only there.
    const cards = page.locator('.jp-NotebookPanel .pw-card');
    await expect.poll(() => look(cards.first())).toEqual(['connected', 'ok']);
    await start(page, CONNECT);
    await expect(cards).toHaveCount(2);
    await expect.poll(() => look(cards.nth(1))).toEqual(['connected', 'ok']);
    const still = /^was connected at [-0-9]+ [0-9:]+$/;
    expect(await look(cards.first())).toEqual([expect.stringMatching(still), 'other']);
    // So is the map of the slices.
    await start(page, '%pathways slices');
    await expect(cards).toHaveCount(3);
    await expect.poll(() => look(cards.nth(2))).toEqual([expect.stringMatching(/^2 slices of .* free$/), 'ok']);
    await picture(page, `truth-cards-${name}`);

    // A new proxy costs arrays, and so does the end.
    const dialog = page.getByRole('dialog');
    await start(page, 'import jax.numpy as jnp\nx = jnp.arange(8.0)\nprint(x.sum())');
    await expect(page.locator('.jp-OutputArea-output').last()).toContainText('28.0');
    await session.getByRole('button', { name: 'Reconnect…' }).click();
    await expect(dialog).toContainText('Reconnect truth.ipynb?');
    await expect(dialog).toContainText(
      /would be replaced by a new one\. 1 array \(32\sB\) on its TPUs would be lost\./
    );
    await picture(page, `truth-reconnect-${name}`);
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await session.getByRole('button', { name: 'Disconnect' }).click();
    await expect(dialog).toContainText(/1 array \(32\sB\) on its TPUs would be lost\./);
    await dialog.getByRole('button', { name: 'Cancel' }).click();

    await page.notebook.save();
    await reload(page);
    await expect(section(panel, 'slices')).toContainText('2 in this notebook, 0 free');
    const later = await said();
    expect(later).not.toMatch(/[1-9] free|other notebooks/);
    expect(later).not.toContain('is not connected');
    await expect.poll(() => look(cards.nth(1))).toEqual(['connected', 'ok']);

    await start(page, 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)');
    await expect(session).toHaveCount(0);
    await expect.poll(() => look(cards.nth(1))).toEqual([expect.stringMatching(still), 'other']);
    expect(await look(cards.nth(2))).toEqual([
      expect.stringMatching(/^2 slices of .*, as of [-0-9]+ [0-9:]+$/),
      'other'
    ]);
    await expect(section(panel, 'events')).toContainText('Ended with its kernel.');
    await picture(page, `truth-killed-${name}`);
    await expect.poll(proxies).toBe('');
  });
}

test('a cell that connects is known by its notebook, also if that is renamed or the cell is deleted', async ({
  page
}) => {
  await newNotebook(page, 'before.ipynb');
  const panel = await openPanel(page);
  const session = section(panel, 'session');
  // It only waits for a file, and never comes to connect.
  await start(
    page,
    'import pathlib, time\nwhile not pathlib.Path("go").exists(): time.sleep(0.05)\nif False:\n    %pathways connect'
  );
  await expect(session).toContainText('A cell connects before.ipynb…');
  await page.evaluate(async () => {
    const { serviceManager, shell } = window.jupyterapp;
    const path: string = (shell.currentWidget as any).context.path;
    await serviceManager.contents.rename(path, path.replace('before', 'after'));
  });
  await expect(session).toContainText('A cell connects after.ipynb…');
  await page.evaluate(() => window.jupyterapp.commands.execute('notebook:delete-cell'));
  await expect(page.locator('.jp-NotebookPanel')).not.toContainText('pathlib');
  await expect(session).toContainText('A cell connects after.ipynb…');
  const folder = await page.filebrowser.getCurrentDirectory();
  await page.contents.uploadContent('', 'text', `${folder}/go`);
  await expect(session).toContainText('after.ipynb is not connected.');
});

test('every action that fails says so where the user looks, and spins no more', async ({ page }) => {
  await newNotebook(page, 'faults.ipynb');
  const panel = await openPanel(page);
  await start(page, CONNECT);
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
  await expect(slice(panel, 0)).toHaveAttribute('data-owner', 'this');
  const id = (await panel.locator('.pw-session').getByRole('definition').last().textContent())!;
  const run = (command: string, args: object = {}) =>
    page.evaluate(
      ([name, given]) => void window.jupyterapp.commands.execute(`pathways-jupyter:${name}`, given as any),
      [command, args] as const
    );
  const toasts = page.locator('.Toastify__toast');
  const actions: [string, () => Promise<void>][] = [
    ['disconnect', () => run('disconnect', { session: id, confirmed: true })],
    ['reconnect', () => run('reconnect', { session: id })],
    ['profile', () => run('profile', { session: id })],
    ['embedded', () => run('start-embedded-cluster')],
    ['quickstart', () => run('open-quickstart')],
    ['suspend', () => run('suspend-job', { job: 'train' })],
    ['resume', () => run('resume-job', { job: 'train' })],
    ['delete', () => run('delete-job', { job: 'train' })],
    ['sweep', () => run('clean-up')]
  ];
  let broken = '';
  await page.route(/\/pathways-jupyter\//, route => {
    const request = route.request();
    const isBroken = request.method() === 'POST' && new URL(request.url()).pathname.endsWith(`/${broken}`);
    return isBroken ? route.fulfill({ status: 500, json: FAULT }) : route.continue();
  });
  for (const [path, act] of actions) {
    broken = path;
    await act();
    const failed = toasts.filter({ hasText: FAULT.message });
    const question = page.getByRole('dialog').locator('.jp-mod-warn');
    await expect(failed.or(question).first()).toBeVisible();
    if (await question.isVisible()) {
      await question.click();
    }
    await expect(failed).toHaveCount(1);
    await expect(failed).toHaveClass(/Toastify__toast--error/);
    await expect(page.locator('.Toastify__spinner')).toHaveCount(0);
    if (path === 'disconnect') {
      await picture(page, 'truth-failed');
      // JupyterLab cuts a long text, which here says what to do.
      await expect(failed).not.toContainText('See its log.');
      await failed.getByRole('button', { name: 'Details' }).click();
      await expect(page.getByRole('dialog')).toContainText('See its log.');
      await page.getByRole('dialog').getByRole('button').last().click();
    }
    await failed.locator('.jp-Notification-Toast-Close').click();
    await expect(toasts).toHaveCount(0);
  }
  // Its error goes with a success of the same action, not with one of another action.
  for (const [path, act] of actions.filter(([path]) => ['embedded', 'quickstart'].includes(path))) {
    broken = path;
    await act();
    await expect(toasts.filter({ hasText: FAULT.message })).toHaveCount(path === 'embedded' ? 1 : 2);
  }
  broken = 'nothing';
  await run('open-quickstart');
  await expect(toasts.filter({ hasText: FAULT.message })).toHaveCount(1);
  await run('start-embedded-cluster');
  await expect(toasts.filter({ hasText: FAULT.message })).toHaveCount(0);
  await page.activity.activateTab('faults.ipynb');
  await disconnect(page, panel);
});
