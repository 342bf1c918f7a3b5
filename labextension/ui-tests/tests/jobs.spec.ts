import { expect, kubectlApply, openPanel, section, test, unfold } from './helpers';

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
  await unfold(panel, 'Jobs');
  await expect(section(panel, 'jobs')).toContainText('JobSet');
  kubectlApply(JOB);
  const row = section(panel, 'jobs').locator('[data-job="train"]');
  const action = (name: string) => row.getByRole('button', { name: `${name} job train` });
  await expect(row).toContainText('Running');

  await row.getByRole('button', { name: 'Log of job train' }).click();
  await expect(page.locator('.pw-log pre')).toHaveText('said by the job');
  await row.getByRole('button', { name: 'Details of job train' }).click();
  await expect(page.locator('.pw-job')).toContainText('1 × tpuv6e:2x2');
  await expect(page.locator('.pw-job').getByRole('button', { name: /Log of pod train-pathways-head-/ })).toBeVisible();

  await action('Suspend').click();
  await expect(row).toContainText('Suspended');
  await expect(page.locator('.pw-job')).toContainText('It has no pods now.');
  await action('Resume').click();
  await expect(row).toContainText('Running');

  const dialog = page.getByRole('dialog');
  await action('Delete').click();
  await expect(dialog).toContainText('their logs are gone');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await expect(row).toContainText('Running');
  await action('Delete').click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(row).toHaveCount(0);
});
