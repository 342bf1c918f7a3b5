/**
 * Measure the sidebar's speed, written as JSON to the file that PATHWAYS_UI_REPORT names. Run by `make bench` for a small
 * cluster and for one of a thousand slices (PATHWAYS_UI_SLICES, PATHWAYS_UI_TYPE).
 */
import * as fs from 'fs';
import * as https from 'https';
import * as path from 'path';

import { IJupyterLabPageFixture } from '@jupyterlab/galata';

import { expect, kubectl, PORT, test } from './helpers';

const SLICES = Number(process.env.PATHWAYS_UI_SLICES || 2);
const ROUNDS = 15;
const UPDATES = 5;

/** The server's private memory, in MB. */
function memory(): number {
  const pid = fs.readFileSync(path.join(__dirname, '..', `.server-pid${PORT}`), 'utf-8');
  return Number(/RssAnon:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf-8'))![1]) / 1024;
}

/** Milliseconds from showing the panel, or unfolding its section, until every slice is painted. */
function firstPaint(page: IJupyterLabPageFixture, unfold = ''): Promise<number> {
  return page.evaluate(
    ([slices, button]) =>
      new Promise<number>(done => {
        const begun = performance.now();
        const look = () => {
          if (document.querySelectorAll('#pathways-jupyter-panel .pw-slice').length === slices) {
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
          } else {
            requestAnimationFrame(look);
          }
        };
        if (button) {
          document.querySelector<HTMLElement>(button)!.click();
        } else {
          void window.jupyterapp.commands.execute('pathways-jupyter:show-panel');
        }
        look();
      }),
    [SLICES, unfold] as const
  );
}

/** Set a pod's readiness, as a kubelet does; resolves just before the request to the API server. */
class Api {
  constructor() {
    const config = JSON.parse(kubectl('config', 'view', '--raw', '-o', 'json'));
    this._server = config.clusters[0].cluster.server;
    const { 'certificate-authority-data': data, 'certificate-authority': file } = config.clusters[0].cluster;
    const ca = data ? Buffer.from(data, 'base64') : fs.readFileSync(file);
    this._agent = new https.Agent({ ca, keepAlive: true });
    const user = config.users[0].user;
    this._token = user.token ?? fs.readFileSync(user.tokenFile, 'utf-8').trim();
  }

  setReady(pod: string, ready: boolean): Promise<void> {
    const body = JSON.stringify({ status: { conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }] } });
    return new Promise((done, failed) => {
      const request = https.request(
        `${this._server}/api/v1/namespaces/default/pods/${pod}/status`,
        {
          method: 'PATCH',
          agent: this._agent,
          headers: { Authorization: `Bearer ${this._token}`, 'Content-Type': 'application/merge-patch+json' }
        },
        response => {
          response.resume();
          response.on('end', () =>
            response.statusCode === 200 ? done() : failed(new Error(`${response.statusCode}`))
          );
        }
      );
      request.on('error', failed);
      request.end(body);
    });
  }

  private readonly _server: string;
  private readonly _agent: https.Agent;
  private readonly _token: string;
}

/** Epoch milliseconds of the frame in which the last slice is painted as `health`. */
function painted(page: IJupyterLabPageFixture, health: string): Promise<number> {
  return page.evaluate(
    ([wanted, index]) =>
      new Promise<number>(done => {
        const look = () => {
          const slice = document.querySelector(`#pathways-jupyter-panel .pw-slice[data-slice$="/${index}"]`);
          if (slice?.getAttribute('data-health') === wanted) {
            requestAnimationFrame(() => done(Date.now()));
          } else {
            requestAnimationFrame(look);
          }
        };
        look();
      }),
    [health, SLICES - 1] as const
  );
}

const median = (values: number[]) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

test('bench', async ({ page }) => {
  test.setTimeout(900_000);
  // A cluster that still creates its pods would take the cores from what is measured.
  const ready = '{.items[0].status.replicatedJobsStatus[?(@.name=="worker")].ready}';
  await expect
    .poll(() => Number(kubectl('get', 'jobsets', '-o', `jsonpath=${ready}`)), { timeout: 300_000 })
    .toBe(SLICES);
  const before = memory();
  const cold = await firstPaint(page);
  // The map alone: the cost for a page that has the rows already.
  const warm: number[] = [];
  const fold = page.locator('#pathways-jupyter-panel .pw-section-slices .pw-title');
  for (let round = 0; round < 3; round++) {
    await fold.click();
    await expect(page.locator('#pathways-jupyter-panel .pw-slice')).toHaveCount(0);
    warm.push(await firstPaint(page, '#pathways-jupyter-panel .pw-section-slices .pw-title'));
  }
  // Jobs arrive before pods; now every pod has arrived.
  await expect(page.locator('#pathways-jupyter-panel [data-section="slices"]')).not.toContainText(
    'Loading from the cluster'
  );
  const after = memory();

  const api = new Api();
  const pod = kubectl('get', 'pods', '-o', 'name')
    .split('\n')
    .find(name => name.includes(`-worker-${SLICES - 1}-0-`))!
    .replace('pod/', '');
  const devtools = await page.context().newCDPSession(page.context().pages()[0]);
  await devtools.send('Performance.enable');
  const busy = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics');
    return metrics.find(each => each.name === 'TaskDuration')!.value * 1000;
  };
  const latencies: number[] = [];
  const thread: number[] = [];
  await painted(page, 'ready');
  for (let round = 0; round < ROUNDS; round++) {
    const ready = round % 2 === 1;
    const seen = painted(page, ready ? 'ready' : 'starting');
    const begun = Date.now();
    await api.setReady(pod, ready);
    latencies.push((await seen) - begun);
  }
  // Main-thread work in the second of an update, minus that of the idle second before.
  await page.evaluate(() => {
    const tasks: number[] = ((window as any).tasks = []);
    new PerformanceObserver(list => list.getEntries().forEach(each => tasks.push(each.duration))).observe({
      type: 'longtask'
    });
  });
  for (let round = 0; round < UPDATES; round++) {
    const idle = await busy();
    await page.waitForTimeout(1000);
    const begun = await busy();
    const rest = begun - idle;
    await api.setReady(pod, round % 2 === 1);
    await page.waitForTimeout(1000);
    thread.push(Math.max(0, (await busy()) - begun - rest));
  }
  await api.setReady(pod, true);
  const report = {
    slices: SLICES,
    first_look_ms: cold,
    first_paint_ms: median(warm),
    change_to_pixel_ms: median(latencies),
    update_main_thread_ms: median(thread),
    long_tasks_ms: await page.evaluate(() => (window as any).tasks),
    server_before_mb: before,
    server_after_mb: after
  };
  console.log(JSON.stringify(report));
  if (process.env.PATHWAYS_UI_REPORT) {
    fs.writeFileSync(process.env.PATHWAYS_UI_REPORT, JSON.stringify(report));
  }
});
