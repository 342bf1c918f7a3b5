/** Takes the pictures of docs/images, and keeps them in the directory that PATHWAYS_UI_IMAGES names; only then. */
import {
  connect,
  disconnect,
  expect,
  indicator,
  newNotebook,
  openPanel,
  picture,
  section,
  slice,
  start,
  test,
  THEMES,
  widen,
  withoutWorker
} from './helpers';

const TRAINING = `
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), ('chips',))
batch = jax.device_put(jnp.ones((512, 512)), NamedSharding(mesh, P('chips')))
weights = jax.device_put(jnp.ones((512, 512)), NamedSharding(mesh, P()))

def loss(weights, batch):
    with jax.named_scope('layer'):
        hidden = jnp.tanh(batch @ weights)
    return (hidden @ weights).mean()

@jax.jit
def step(weights, batch):
    return weights - 0.01 * jax.grad(loss)(weights, batch)

while True:
    weights = step(weights, batch).block_until_ready()
`;

test.skip(!process.env.PATHWAYS_UI_IMAGES, 'no directory for the pictures');

for (const [theme, name] of THEMES) {
  test(`the sidebar with a connected notebook, ${name}`, async ({ page }) => {
    await page.theme.setTheme(theme);
    await newNotebook(page, 'tpus.ipynb');
    const panel = await openPanel(page);
    await connect(page, panel);
    await start(page, 'import jax; jax.devices()[:2]');
    await start(page, '%pathways slices');
    await expect(page.locator('.jp-OutputArea .pw-map').last()).toBeVisible();
    await withoutWorker(1, async () => {
      await expect(section(panel, 'events').locator('[data-kind="slice-down"]')).toBeVisible();
    });
    await expect(section(panel, 'events').locator('[data-kind="slice-healed"]')).toBeVisible();
    await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
    // Wait until the notification closes after the recovery: it would cover the notebook.
    await expect(page.locator('.Toastify__toast')).toHaveCount(0);
    await picture(page, `sidebar-${name}`);
    // Small enough to be read on a page: the sidebar, and the session's card.
    await picture(page, `connected-${name}`, { x: 33, y: 28, width: 897, height: 496 });
    // With the details of a slice, at 400 pixels.
    await slice(panel, 1).click();
    await widen(page, panel, 400);
    await picture(page, `sidebar-wide-${name}`);
    await disconnect(page, panel);
  });
}

for (const [theme, name] of THEMES.slice(0, 2)) {
  test(`the profile of a training step, ${name}`, async ({ page }) => {
    await page.theme.setTheme(theme);
    await newNotebook(page, 'training.ipynb');
    const panel = await openPanel(page);
    await connect(page, panel);
    await start(page, TRAINING);
    await expect(indicator(page)).toHaveAttribute('data-status', 'busy');
    await panel.getByRole('button', { name: 'Profile', exact: true }).click();
    await expect(page.locator('.pw-profile')).toContainText('Profile of 8 chips');
    await expect(page.locator('.Toastify__toast')).toHaveCount(0);
    await picture(page, `profile-${name}`);
    await disconnect(page, panel, { busy: true });
  });
}
