import {
  disconnect,
  expect,
  indicator,
  kubectl,
  kubectlApply,
  newNotebook,
  openPanel,
  section,
  setSetting,
  slice,
  test
} from './helpers';

const JOB = {
  apiVersion: 'pathways-job.pathways.domain/v1',
  kind: 'PathwaysJob',
  metadata: { name: 'train', namespace: 'default' },
  spec: {
    workers: [{ type: 'ct6e-standard-4t', topology: '2x2', numSlices: 1 }],
    pathwaysDir: 'gs://bucket/tmp',
    controller: {
      deploymentMode: 'default',
      template: {
        spec: {
          containers: [
            {
              name: 'main',
              image: 'python:3.12',
              command: ['python', '-uc', 'import time; print("said by the job"); time.sleep(600)']
            }
          ]
        }
      }
    }
  }
};

test('a job is shown, read, suspended, resumed and deleted from its row', async ({ page }) => {
  const panel = await openPanel(page);
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  // The service's own JobSet is under "Services & proxies".
  await expect(panel.getByRole('button', { name: 'Jobs', exact: true })).toHaveCount(0);
  kubectlApply(JOB);
  const row = section(panel, 'jobs').locator('[data-job="train"]');
  const action = (name: string) => row.getByRole('button', { name: `${name} job train` });
  await expect(row).toContainText('Running');

  await row.getByRole('button', { name: 'Log of job train' }).click();
  await expect(page.locator('.pw-log pre')).toHaveText('said by the job');
  await row.getByRole('button', { name: 'Details of job train' }).click();
  await expect(page.locator('.pw-job')).toContainText('1 × tpuv6e:2x2');
  await expect(page.locator('.pw-job').getByRole('button', { name: /Log of pod train-pathways-head-/ })).toBeVisible();

  const dialog = page.getByRole('dialog');
  await action('Suspend').click();
  await expect(dialog).toContainText('Its pods end with all that they hold');
  await dialog.getByRole('button', { name: 'Suspend' }).click();
  await expect(row).toContainText('Suspended');
  await expect(page.locator('.pw-job')).toContainText('It has no pods now.');
  await action('Resume').click();
  await expect(row).toContainText('Running');

  await action('Delete').click();
  await expect(dialog).toContainText('their logs are gone');
  // Enter is not a yes.
  await page.keyboard.press('Enter');
  await expect(dialog).toHaveCount(0);
  await expect(row).toContainText('Running');
  await action('Delete').click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(panel.getByRole('button', { name: 'Jobs', exact: true })).toHaveCount(0);
  // What its tab shows was true before, and looks so.
  await expect(page.locator('.pw-job .pw-stale')).toContainText('1 × tpuv6e:2x2');
});

test('what the user confirms is done where the question was asked, also if another cluster is in view by then', async ({
  page
}) => {
  const panel = await openPanel(page);
  const dialog = page.getByRole('dialog');
  const sent: { namespace: string }[] = [];
  await page.route(/\/pathways-jupyter\/(jobs|sweep)/, route => {
    sent.push(route.request().postDataJSON());
    return route.fulfill({ json: { removed: ['a proxy'] } });
  });
  for (const [command, args, requests] of [
    ['delete-job', { job: 'train' }, 1],
    ['clean-up', {}, 2]
  ] as const) {
    await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
    await page.evaluate(([name, given]) => void window.jupyterapp.commands.execute(`pathways-jupyter:${name}`, given), [
      command,
      args
    ] as const);
    await expect(dialog).toBeVisible();
    await setSetting(page, 'namespace', 'other');
    await expect(slice(panel, 1)).toHaveCount(0);
    await dialog.locator('.jp-mod-warn').click();
    await expect.poll(() => sent.map(each => each.namespace)).toEqual(Array(requests).fill(''));
    sent.length = 0;
    await setSetting(page, 'namespace', '');
  }
});

test('a notebook attaches to a headless job from its row', async ({ page }) => {
  const { template, ...controller } = JOB.spec.controller;
  expect(template).toBeDefined();
  kubectlApply({ ...JOB, metadata: { ...JOB.metadata, name: 'lab' }, spec: { ...JOB.spec, controller } });
  try {
    const panel = await openPanel(page);
    const attach = section(panel, 'jobs').getByRole('button', { name: 'Connect this notebook to job lab' });
    await attach.click();
    await expect(page.locator('.Toastify')).toContainText('No notebook is in front.');
    await newNotebook(page);
    await attach.click();
    await expect(page.locator('.jp-CodeCell').first()).toContainText('%pathways connect --job lab --local');
    await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
    await expect(panel.locator('.pw-session')).toContainText('lab');
    await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
    await attach.click();
    await expect(page.locator('.Toastify')).toContainText('is connected already');
    await section(panel, 'jobs').getByRole('button', { name: 'Delete job lab' }).click();
    const dialog = page.getByRole('dialog');
    await expect(dialog).toContainText(/Attached sessions lose their arrays: \S+\.ipynb\./);
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await disconnect(page, panel);
  } finally {
    kubectl('delete', 'pathwaysjob', 'lab', '--wait=false');
  }
});
