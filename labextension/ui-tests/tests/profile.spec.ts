/** What the chips of a session do: a picture in a tab. */
import { IJupyterLabPageFixture } from '@jupyterlab/galata';
import { Locator } from '@playwright/test';

import {
  connect,
  disconnect,
  expect,
  faults,
  indicator,
  newNotebook,
  openPanel,
  picture,
  start,
  test,
  VISITED
} from './helpers';

const STEP = `
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
x = jax.device_put(jnp.ones((512, 512)), NamedSharding(Mesh(jax.devices(), ('chips',)), P('chips')))

@jax.jit
def step(x):
    with jax.named_scope('<img src=x onerror=alert(1)>'):
        y = jnp.tanh(x @ x.T)
    return (y @ x).sum()

step(x).block_until_ready()
`;
const BUSY = `${STEP}while True: step(x).block_until_ready()`;

/** Press the sidebar's button, and return the tab with the picture. */
async function profile(page: IJupyterLabPageFixture, panel: Locator): Promise<Locator> {
  await panel.getByRole('button', { name: 'Profile', exact: true }).click();
  await expect(page.locator('.Toastify__toast')).toContainText('Tracing the chips for 5 s…');
  const tab = page.locator('.pw-profile');
  await expect(tab).toContainText('Profile of 8 chips');
  return tab;
}

for (const [theme, look] of VISITED) {
  test(`a busy session is profiled from the sidebar (${look})`, async ({ page }) => {
    await page.theme.setTheme(theme);
    await newNotebook(page, 'step.ipynb');
    const panel = await openPanel(page);
    await connect(page, panel);
    const dialogs: string[] = [];
    page.on('dialog', dialog => dialogs.push(dialog.message()) && dialog.dismiss());
    await start(page, BUSY);
    await expect(indicator(page)).toHaveAttribute('data-status', 'busy');
    await picture(page, `profile-button-${look}`);
    const tab = await profile(page, panel);
    await expect(tab.locator('svg path').first()).toBeVisible();
    await expect(tab).toContainText('slice 0');
    await expect(tab).toContainText('slice 1');
    // What a program calls its operations is text, whatever it is.
    await expect(tab).toContainText('<img src=x onerror=alert(1)>');
    expect(dialogs).toEqual([]);
    await expect(tab).toContainText(/STORAGE_EMULATOR_HOST=\S+ xprof --logdir gs:\/\/pathways-local\/profiles/);
    expect(await faults(page, '.pw-profile')).toEqual([]);
    await picture(page, `profile-tab-${look}`);
    await disconnect(page, panel, { busy: true });
  });
}
