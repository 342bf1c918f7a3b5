/** A notebook of this machine whose kernel runs in the lab's pod: from `kernel add` to its end. */
import { IJupyterLabPageFixture } from '@jupyterlab/galata';
import {
  connect,
  disconnect,
  expect,
  indicator,
  newNotebook,
  openPanel,
  picture,
  reload,
  section,
  slice,
  start,
  test
} from './helpers';

const KERNEL = 'pathways-embedded-cluster';

test('a kernel beside the chips is one of this JupyterLab, and so is its session', async ({ page }) => {
  await newNotebook(page, 'Add.ipynb');
  await start(page, '!pathways-jupyter kernel add --local');
  await expect(page.locator('.jp-OutputArea-output')).toContainText('Python beside the chips (embedded cluster)');
  await page.evaluate(() => window.jupyterapp.serviceManager.kernelspecs.refreshSpecs());
  await expect(async () => {
    const specs = await page.evaluate(() =>
      Object.keys(window.jupyterapp.serviceManager.kernelspecs.specs?.kernelspecs ?? {})
    );
    expect(specs).toContain(KERNEL);
  }).toPass();

  const panel = await openPanel(page);
  const opening = newNotebook(page, 'Beside.ipynb', KERNEL);
  // While there is no pod yet, the sidebar says what the kernel waits for.
  await expect(section(panel, 'session')).toContainText('The kernel of Beside.ipynb starts beside the chips.');
  await picture(page, 'beside-starting');
  await opening;
  await expect(section(panel, 'session')).toContainText('Its kernel runs beside the chips, in');

  // What connects it names no cluster: --local would be another one there.
  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Cluster')).toBeDisabled();
  await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
  await expect(dialog.locator('.pw-line')).toHaveText('%pathways connect --tpu tpuv6e:2x2=2');
  await picture(page, 'beside-dialog');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await connect(page, panel, 1);
  await expect(section(panel, 'session')).toContainText('Its kernel runs beside the chips, in');
  await expect(section(panel, 'events')).toContainText('No tunnel: direct');
  await expect(slice(panel, 0)).toHaveAttribute('data-owner', 'this');
  await picture(page, 'beside-connected');

  await start(page, 'import jax.numpy as jnp; float(jnp.ones(8).sum())');
  await expect(page.locator('.jp-NotebookPanel:visible .jp-OutputArea-output').last()).toContainText('8.0');
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle');

  // After a reload too, and it is disconnected from here.
  await reload(page);
  await openPanel(page);
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await disconnect(page, panel);
  await expect(section(panel, 'session')).toContainText('Beside.ipynb is not connected.');
  await picture(page, 'beside-disconnected');
  await page.evaluate(() => window.jupyterapp.serviceManager.sessions.shutdownAll());
});

test('a notebook moves beside the chips and back, in the same panel', async ({ page }) => {
  await newNotebook(page, 'Moves.ipynb');
  const panel = await openPanel(page);
  const last = page.locator('.jp-NotebookPanel:visible .jp-OutputArea-output').last();
  await start(page, '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=1 --wait 60');
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await start(page, 'import jax.numpy as jnp\nx = jnp.arange(8.0)\nx.shape');
  await expect(last).toContainText('(8,)');
  await start(page, '%pathways move --yes');
  await expect(last).toContainText('The next cell runs beside the chips (embedded cluster), with 1 variable');
  await expect(section(panel, 'session')).toContainText('Its kernel runs beside the chips, in');
  await picture(page, 'beside-moved');
  await start(page, 'print("sum", float(x.sum()))');
  await expect(last).toContainText('sum 28.0');
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await expect(section(panel, 'events')).toContainText('No tunnel: direct');
  await picture(page, 'beside-arrived');

  await start(page, '%pathways move --yes');
  await expect(last).toContainText('The next cell runs on your machine, with 1 variable');
  // A cell that comes at once is not run in the kernel that ends, and says so.
  await expect(async () => {
    await start(page, 'print("again", float(x.sum()))');
    await expect(last).toContainText(/again 28.0|Run the cell again/);
    await expect(last).toContainText('again 28.0', { timeout: 100 });
  }).toPass();
  await expect(section(panel, 'session')).not.toContainText('beside the chips');
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await picture(page, 'beside-back');
  await page.evaluate(() => window.jupyterapp.serviceManager.sessions.shutdownAll());
});

/** Run code in the kernel of a notebook that is not in front. */
async function runBehind(page: IJupyterLabPageFixture, name: string, code: string): Promise<void> {
  const folder = await page.filebrowser.getCurrentDirectory();
  await page.evaluate(
    async ([path, source]) => {
      const { sessions } = window.jupyterapp.serviceManager;
      const model = (await sessions.findByPath(path))!;
      const { kernel } = sessions.connectTo({ model });
      await kernel!.requestExecute({ code: source }).done;
    },
    [`${folder}/${name}`, code] as const
  );
}

test('on a line of 100 ms a notebook moves and back, and a cut loses no output', async ({ page }) => {
  const outputs = page.locator('.jp-NotebookPanel:visible .jp-OutputArea-output');
  await newNotebook(page, 'Line.ipynb');
  await start(
    page,
    [
      'import json, pathlib, subprocess, sys, pathways_jupyter',
      'sys.path.insert(0, str(pathlib.Path(pathways_jupyter.__file__).parents[1]))',
      'from benchmarks.link import Link',
      'from pathways_jupyter.local.node import programs',
      'def cli(*words):',
      '    return subprocess.run(["pathways-jupyter", *words], capture_output=True, text=True, check=True).stdout',
      'near = pathlib.Path(cli("local", "kubeconfig").strip())',
      'link = Link(near, delay=0.05)',
      'far, image = link.write(pathlib.Path("far").absolute()), programs.reference(programs.LAB_IMAGE)',
      'added = cli("kernel", "add", "--kubeconfig", str(far), "--image", image, "--name", "far", "--json")',
      // Over the line it is any cluster, with a bucket that one has to name and to reach.
      'pathlib.Path("bucket.json").write_text(json.dumps(json.loads(near.with_name("storage.json").read_text())["variables"]))',
      'print("named", json.loads(added)["name"])'
    ].join('\n')
  );
  await expect(outputs.last()).toContainText('named ');
  const name = (await outputs.last().innerText()).replace('named ', '').trim();
  await page.evaluate(() => window.jupyterapp.serviceManager.kernelspecs.refreshSpecs());

  const panel = await openPanel(page);
  await newNotebook(page, 'Far.ipynb');
  const settings = '--kubeconfig far --gcs-bucket gs://pathways-local --tpu tpuv6e:2x2=1 --wait 60';
  const reached = 'import json, os, pathlib; os.environ |= json.loads(pathlib.Path("bucket.json").read_text())';
  await start(page, `${reached}\n%load_ext pathways_jupyter\n%pathways connect ${settings}`);
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected', { timeout: 60_000 });
  await start(page, `import jax, time\nx = jax.numpy.arange(8.0)\n%pathways move ${name}`);
  await expect(outputs.last()).toContainText('The next cell runs beside the chips', { timeout: 60_000 });
  await expect(section(panel, 'session')).toContainText('Its kernel runs beside the chips, in');

  await start(page, 'for number in range(400):\n    print(number, flush=True); time.sleep(0.05)');
  await expect(outputs.last()).toContainText('10');
  await runBehind(page, 'Line.ipynb', 'link.cut()');
  await expect(section(panel, 'session')).toContainText('The connection is cut; the kernel goes on.');
  // How the session is there is not known now, and no advice is about a process of this machine.
  await expect(panel.locator('.pw-session')).toContainText('Out of reach');
  await expect(panel.locator('.pw-session')).not.toContainText('kill');
  await picture(page, 'beside-cut');
  await runBehind(page, 'Line.ipynb', 'link.open()');
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle', { timeout: 60_000 });
  const shown = (await outputs.last().innerText()).trim().split(/\s+/);
  expect(shown).toEqual(Array.from({ length: 400 }, (_, number) => String(number)));
  await expect(section(panel, 'session')).not.toContainText('The connection is cut');

  await start(page, 'print("asleep", flush=True)\ntime.sleep(600)');
  await expect(outputs.last()).toContainText('asleep');
  // The fixtures would read the answer to the page's own request, which is empty, as JSON.
  const kernel = await page.evaluate(
    () => (window.jupyterapp.shell.currentWidget as any).sessionContext.session.kernel.id as string
  );
  expect((await page.request.post(`/api/kernels/${kernel}/interrupt`)).status()).toBe(204);
  await expect(outputs.last()).toContainText('KeyboardInterrupt');
  await start(page, '%pathways move');
  await expect(outputs.last()).toContainText('The next cell runs on your machine', { timeout: 60_000 });
  await expect(section(panel, 'session')).not.toContainText('beside the chips');
  await start(page, 'print("sum", float(x.sum()), jax.devices()[0].platform)');
  await expect(outputs.last()).toContainText('sum 28.0 tpu', { timeout: 60_000 });
  await disconnect(page, panel);
});
