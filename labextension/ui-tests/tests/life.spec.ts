/** The panel as it comes to life, from no cluster to a connected notebook, in narrow, wide, low and high windows. */
import { IJupyterLabPageFixture, test as galata } from '@jupyterlab/galata';
import { LaunchOptions, Locator } from '@playwright/test';

import {
  expect,
  indicator,
  listen,
  newNotebook,
  openPanel,
  picture,
  PORT,
  section,
  slice,
  start,
  widen
} from './helpers';

/** With the scroll bars that users have on Linux and Windows: they take room, and Playwright hides them. */
const base = galata.extend<object, { launchOptions: LaunchOptions }>({
  launchOptions: [
    async ({ launchOptions }, use) => use({ ...launchOptions, ignoreDefaultArgs: ['--hide-scrollbars'] }),
    { scope: 'worker' }
  ]
});

/** How a notebook gets its first cluster. */
const WAYS: { readonly [way: string]: (page: IJupyterLabPageFixture, panel: Locator) => Promise<void> } = {
  'a cell': async (page, panel) => {
    await start(page, '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2');
    // Also while the embedded cluster starts, which is before there is a session.
    await expect(panel.getByRole('button', { name: 'Start the embedded cluster' })).toBeDisabled();
    const said = await listen(page);
    await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
    await expect(section(panel, 'events')).toContainText('Connected in');
    const texts = await said();
    // The first where the cell starts the cluster for longer than the panel needs to draw; a connect that takes less
    // than a second may be over before.
    expect(texts).toMatch(/A cell connects Untitled\.ipynb…|Starting|Connected in 0\./);
    expect(texts).not.toContain('is not connected');
  },
  'the dialog': async (page, panel) => {
    await panel.getByRole('button', { name: 'Connect…' }).click();
    const dialog = page.getByRole('dialog');
    // The line says what happens: the embedded cluster is started with these slices.
    await expect(dialog.locator('.pw-line')).toHaveText('%pathways connect --local --tpu tpuv6e:2x2=2');
    // It has no other namespace or service, and each other field changes the line.
    await expect(dialog.getByLabel('Namespace')).toBeDisabled();
    await expect(dialog.getByLabel('Service', { exact: true })).toBeDisabled();
    await dialog.getByLabel('Number of slices').fill('3');
    await expect(dialog.locator('.pw-line')).toHaveText('%pathways connect --local --tpu tpuv6e:2x2=3');
    await dialog.getByLabel('Number of slices').fill('2');
    await dialog.getByRole('button', { name: 'Connect', exact: true }).click();
  },
  'the welcome card': async (page, panel) => {
    const start = panel.getByRole('button', { name: 'Start the embedded cluster' });
    await expect(panel.locator('.jp-mod-accept')).toHaveCount(1);
    await start.click();
    await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
    await expect(start).toHaveCount(0);
    await expect.poll(() => faults(panel)).toEqual([]);
    await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
    const dialog = page.getByRole('dialog');
    await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
    await dialog.getByRole('button', { name: 'Connect', exact: true }).click();
  }
};

const END = `
import pathways_jupyter
from pathways_jupyter.local import cluster
session = pathways_jupyter.current_session()
session and session.disconnect()
cluster.down(); print('it', 'has ended')`;

/** End the session and the cluster: the next test begins without one. A traceback would show the code, but not the words. */
async function end(page: IJupyterLabPageFixture): Promise<void> {
  await start(page, END);
  await expect(page.locator('.jp-OutputArea-output').last()).toContainText('it has ended');
}

/** What is wrong with the panel's layout at this moment. */
function faults(panel: Locator): Promise<string[]> {
  return panel.evaluate(node => {
    const found: string[] = [];
    const { right, bottom } = node.getBoundingClientRect();
    const shown = [...node.querySelectorAll('*')].filter(each => each.getClientRects().length > 0);
    for (const each of shown) {
      const beyond = each.getBoundingClientRect().right - right;
      // What is cut with an ellipsis is whole in its tooltip.
      if (beyond > 1 && !each.closest('.pw-oneline, [title]')) {
        found.push(`${each.outerHTML.slice(0, 80)} ends ${beyond} px beyond the panel`);
      }
    }
    const sections = shown.filter(each => each.matches('[data-section]'));
    // Not of what is in them: that is cut off.
    const lowest = Math.max(
      ...shown.filter(each => each.matches('.pw-section')).map(each => each.getBoundingClientRect().bottom)
    );
    for (const each of sections) {
      const hidden = each.scrollHeight - each.clientHeight;
      if (hidden > 1 && lowest < bottom - 2) {
        found.push(`${each.getAttribute('data-section')} hides ${hidden} px above ${bottom - lowest} px of blank`);
      }
    }
    return found;
  });
}

// Each begins and ends without a cluster, so that the workers share them.
base.describe.configure({ mode: 'parallel' });

for (const width of [250, 400]) {
  for (const height of [600, 900]) {
    base.describe(`In ${width} x ${height} pixels`, () => {
      base.use({ baseURL: `http://127.0.0.1:${PORT + 2}`, viewport: { width: 1200, height } });

      for (const [way, connect] of Object.entries(WAYS)) {
        base(`nothing is cut off when the first connect comes from ${way}`, async ({ page }) => {
          await newNotebook(page);
          const panel = await openPanel(page);
          await widen(page, panel, width);
          await expect(panel).toContainText('No cluster is configured yet.');
          expect(await faults(panel)).toEqual([]);
          try {
            await connect(page, panel);
            await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
            await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
            await expect(section(panel, 'events')).toContainText('Connected in');
            await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
            await expect.poll(() => faults(panel)).toEqual([]);
            await picture(page, `life-${way.replace(/ /g, '-')}-${width}x${height}`);
          } finally {
            await end(page);
          }
        });
      }
    });
  }
}

base.describe('A service with more slices than one needs', () => {
  base.use({ baseURL: `http://127.0.0.1:${PORT + 2}` });

  base('the dialog suggests what the line to drag suggests, also while more options are shown', async ({ page }) => {
    await newNotebook(page);
    const panel = await openPanel(page);
    try {
      await start(page, "from pathways_jupyter.local import cluster\ncluster.ensure({'tpuv6e:2x2': 4})");
      const line = section(panel, 'session').locator('.pw-line');
      await expect(line).toContainText('--tpu tpuv6e:2x2=2');
      await expect(section(panel, 'slices')).toContainText('4 free');
      const suggested = (await line.textContent())!;
      await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
      const dialog = page.getByRole('dialog');
      await expect(dialog.getByLabel('Slice type')).toContainText('4 of 4 free');
      await expect(dialog.getByLabel('Number of slices')).toHaveValue('2');
      await expect(dialog.locator('.pw-line')).toContainText('--local --tpu tpuv6e:2x2=2');
      expect(suggested).toContain('--local --tpu tpuv6e:2x2=2');
      await dialog.getByText('More', { exact: true }).click();
      await expect(dialog.locator('.pw-line')).toBeInViewport({ ratio: 1 });
      await picture(page, 'life-dialog-more');
      await dialog.getByLabel('Variables').fill('A=1');
      await expect(dialog.locator('.pw-line')).toContainText('--proxy-env=A=1');
      await dialog.getByRole('button', { name: 'Cancel' }).click();
    } finally {
      await end(page);
    }
  });
});

base.describe('What dies on this machine', () => {
  base.use({ baseURL: `http://127.0.0.1:${PORT + 2}` });

  base('a stopped supervisor is not green, and a killed cluster starts again with one click', async ({ page }) => {
    await newNotebook(page);
    const panel = await openPanel(page);
    const session = panel.locator('.pw-session');
    const state = session.getByRole('status').first();
    try {
      await start(page, '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=3');
      await expect(session).toHaveAttribute('data-state', 'connected');
      await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
      await start(page, SIGNAL('session.record.pid', 'STOP'));
      await expect(state).toContainText('Not answering');
      await expect(state.locator('.pw-tone')).toHaveClass(/pw-tone-fail/);
      await expect(session.getByRole('alert')).toContainText('which does not answer: cells wait for it.');
      expect(await faults(panel)).toEqual([]);
      await picture(page, 'life-silent');
      const [, pid] = /kill -CONT (\d+)/.exec((await session.getByRole('alert').textContent())!)!;
      process.kill(Number(pid), 'SIGCONT');
      await expect(state).toContainText('Connected');

      await start(page, SIGNAL('cluster.find().pid', 'KILL'));
      const slices = section(panel, 'slices');
      await expect(slices.getByRole('alert')).toContainText('The embedded cluster of this machine has ended.');
      expect(await faults(panel)).toEqual([]);
      await picture(page, 'life-killed');
      await slices.getByRole('button', { name: 'Start the embedded cluster' }).click();
      // As large as it was.
      await expect(slices).toContainText('3 slices, 3 ready');
      await expect(slices.getByRole('alert')).toHaveCount(0);

      await panel.getByRole('button', { name: 'Reconnect' }).click();
      await expect(state).toContainText('Connected');
      // Lines wrap as beside a scroll bar, also without one: a bar that was needed for a moment would else stay.
      await page.setViewportSize({ width: 1280, height: 1000 });
      const events = section(panel, 'events');
      await expect.poll(() => events.evaluate(node => node.scrollHeight - node.clientHeight)).toBe(0);
      expect(await events.evaluate((node: HTMLElement) => node.offsetWidth - node.clientWidth)).toBeGreaterThan(0);
      expect(await faults(panel)).toEqual([]);
    } finally {
      await end(page);
    }
  });
});

/** A cell that sends a signal to the process whose id an expression names. */
const SIGNAL = (pid: string, signal: string) => `
import os, signal, pathways_jupyter
from pathways_jupyter.local import cluster
session = pathways_jupyter.current_session()
os.kill(${pid}, signal.SIG${signal})`;
