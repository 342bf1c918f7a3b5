/** Accessibility: keyboard only, screen readers, and all themes. */
import { IJupyterLabPageFixture } from '@jupyterlab/galata';

import { expect, faults, newNotebook, openPanel, picture, section, slice, test, THEMES, unfold } from './helpers';

test('axe finds no violation in the panel and the dialog, in any theme', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  await unfold(panel, 'Services & proxies');
  for (const [theme, name] of THEMES) {
    await page.theme.setTheme(theme);
    await expect(section(panel, 'services')).toContainText('2 of 2 free');
    expect(await faults(page, '#pathways-jupyter-panel')).toEqual([]);
    await panel.getByRole('button', { name: 'Connect…' }).click();
    const dialog = page.getByRole('dialog');
    await expect(dialog.getByLabel('Slice type')).toContainText('free');
    expect(await faults(page, '.jp-Dialog-content')).toEqual([]);
    await picture(page, `connect-${name}`);
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await panel.getByRole('button', { name: 'Show as a list' }).click();
    expect(await faults(page, '#pathways-jupyter-panel')).toEqual([]);
    await panel.getByRole('button', { name: 'Show as a map' }).click();
  }
});

/** Press a key until `there` holds, a limited number of times. */
async function walk(page: IJupyterLabPageFixture, key: string, there: () => Promise<boolean>): Promise<void> {
  for (let step = 0; step < 60; step++) {
    if (await there()) {
      return;
    }
    await page.keyboard.press(key);
  }
  const where = await page.evaluate(() => document.activeElement!.outerHTML.slice(0, 300));
  throw new Error(`${key} does not lead there, but to ${where}`);
}

test('everything in the panel can be reached by keyboard alone', async ({ page }) => {
  await newNotebook(page);
  // Start at the top of the page, like a keyboard user, and move along the sidebar's tabs.
  await page.evaluate(() => (document.activeElement as HTMLElement).blur());
  const focused = () =>
    page.evaluate(() => {
      const active = document.activeElement!;
      return `${active.closest('.jp-SideBar.jp-mod-left') ? 'sidebar' : ''} ${active.getAttribute('data-id') ?? ''}`;
    });
  await walk(page, 'Tab', async () => (await focused()).startsWith('sidebar'));
  await walk(page, 'ArrowDown', async () => (await focused()).includes('pathways-jupyter-panel'));
  await page.keyboard.press('Enter');
  const panel = page.locator('#pathways-jupyter-panel');
  await expect(panel).toBeVisible();
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  await walk(page, 'Tab', () => page.evaluate(() => !!document.activeElement!.closest('#pathways-jupyter-panel')));

  const reached = new Set<string>();
  for (let step = 0; step < 40; step++) {
    const name = await page.evaluate(() => {
      const active = document.activeElement as HTMLElement;
      const name = active.closest('.jp-Toolbar') ? 'toolbar' : active.getAttribute('aria-label') || active.textContent;
      return active.closest('#pathways-jupyter-panel') ? name : '';
    });
    if (name) {
      reached.add(name);
    }
    await page.keyboard.press('Tab');
  }
  // Read only now, because rows arrive while the focus moves.
  const wanted = await panel.getByRole('button').evaluateAll(all =>
    all
      // A toolbar is one stop, and its buttons lie in shadow trees.
      .filter(each => !(each as HTMLButtonElement).disabled && each.getRootNode() === document)
      .map(each => each.getAttribute('aria-label') || each.textContent)
  );
  expect(wanted.length).toBeGreaterThan(5);
  expect([...reached]).toEqual(expect.arrayContaining([...wanted, 'toolbar']));
});

test('arrow keys walk the slice map, and Enter shows who holds a slice and its hosts', async ({ page }) => {
  const panel = await openPanel(page);
  const map = section(panel, 'slices').getByRole('listbox');
  await expect(map.getByRole('option')).toHaveCount(2);
  await expect(map).toHaveAccessibleName(/2 slices, 2 ready, 2 free/);
  await map.focus();
  const active = () =>
    map.evaluate(node => document.getElementById(node.getAttribute('aria-activedescendant')!)!.dataset.slice);
  expect(await active()).toMatch(/\/0$/);
  await page.keyboard.press('ArrowRight');
  expect(await active()).toMatch(/\/1$/);
  await page.keyboard.press('Enter');
  const details = panel.getByRole('region', { name: 'Details of Slice 1' });
  await expect(details).toContainText('tpuv6e:2x2, 4 chips');
  await expect(details).toContainText('free');
  await expect(details.getByRole('listitem')).toHaveCount(1);
  expect(await faults(page, '#pathways-jupyter-panel')).toEqual([]);
  await details.getByRole('button', { name: 'Log of slice 1, host 0' }).click();
  await expect(page.locator('.pw-log pre')).toContainText('worker');
  await map.focus();
  await page.keyboard.press('Escape');
  await expect(details).toHaveCount(0);
  await slice(panel, 0).click();
  const other = panel.getByRole('region', { name: 'Details of Slice 0' });
  await expect(other).toBeInViewport();
});

test('Tab visits the fields of the dialog in order, from the first', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  await panel.getByRole('button', { name: 'Connect…' }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Slice type')).toContainText('free');
  const reached: string[] = [];
  const order = [
    'Cluster',
    'Namespace',
    'Service',
    'Slice type',
    'Number of slices',
    'Wait for slices that are taken',
    'More',
    'Cancel',
    'Insert cell',
    'Connect'
  ];
  // The focus wraps around within the dialog.
  for (let stop = 0; stop <= order.length; stop++) {
    reached.push(
      await page.evaluate(() => {
        const active = document.activeElement as HTMLInputElement;
        return (active.labels?.[0] ?? active).textContent.trim();
      })
    );
    await page.keyboard.press('Tab');
  }
  expect(reached).toEqual([...order, 'Cluster']);
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await expect(panel.getByRole('button', { name: 'Connect…' })).toBeFocused();
});

test('a hidden panel sends nothing', async ({ page }) => {
  const panel = await openPanel(page);
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  const sent: string[] = [];
  page.on('request', request => request.url().includes('pathways-jupyter') && sent.push(request.url()));
  await page.evaluate(() => {
    // eslint-disable-next-line @typescript-eslint/unbound-method -- called with its socket below
    const send = WebSocket.prototype.send;
    (window as any).frames_sent = [];
    WebSocket.prototype.send = function (data) {
      if (this.url.includes('pathways-jupyter')) {
        (window as any).frames_sent.push(data);
      }
      send.call(this, data);
    };
  });
  await page.sidebar.openTab('filebrowser');
  await expect(panel).toBeHidden();
  await page.waitForTimeout(20_000);
  // The single frame unsubscribes from the cluster.
  expect(await page.evaluate(() => (window as any).frames_sent)).toEqual(['{"type":"look","scope":null}']);
  expect(sent).toEqual([]);
});
