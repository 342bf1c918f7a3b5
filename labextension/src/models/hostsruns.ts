/** Runs on many hosts in words, and what can be done with each. */
import { ITrans } from './trans';
import { age, Tone } from './words';
import { IHostsRun, IRunHost } from './wire';

export type RunAction = 'stop' | 'refresh';

const PHASE_TONES: { readonly [phase: string]: Tone } = {
  running: 'ok',
  failed: 'fail',
  lost: 'fail',
  stopped: 'none'
};

export function runTone(run: IHostsRun): Tone {
  switch (run.state) {
    case 'running':
      return run.hosts.some(isFailed) ? 'fail' : 'ok';
    case 'ended':
      return run.code === 0 ? 'ok' : wasStopped(run) ? 'none' : 'fail';
    default:
      return 'wait';
  }
}

export function runWord(trans: ITrans, run: IHostsRun): string {
  switch (run.state) {
    case 'running':
      return trans.__('Running');
    case 'detached':
      return trans.__('Detached');
    case 'left':
      return trans.__('Not followed');
    case 'ended':
      return run.code === 0
        ? trans.__('Completed')
        : wasStopped(run)
          ? trans.__('Stopped')
          : trans.__('Failed, exit code %1', run.code ?? '?');
  }
}

/** "16 hosts: 12 running, 3 ok, 1 failed" */
export function hostsWords(trans: ITrans, run: IHostsRun): string {
  const { hosts } = run;
  const count = (fits: (host: IRunHost) => boolean) => hosts.filter(fits).length;
  const ok = count(isOk);
  const failed = count(isFailed);
  const stopped = count(host => host.phase === 'stopped');
  const running = count(host => host.phase === 'running' || host.phase === 'reconnecting');
  const before = hosts.length - ok - failed - stopped - running;
  const parts = [
    running && trans.__('%1 running', running),
    ok && trans.__('%1 ok', ok),
    failed && trans.__('%1 failed', failed),
    stopped && trans.__('%1 stopped', stopped),
    before && trans.__('%1 not started', before)
  ];
  return trans.__('%1: %2', trans._n('%1 host', '%1 hosts', hosts.length), parts.filter(Boolean).join(', '));
}

export function hostTone(host: IRunHost): Tone {
  return host.phase === 'exited' ? (host.code === 0 ? 'ok' : 'fail') : (PHASE_TONES[host.phase] ?? 'wait');
}

/** "running", "receiving files, 40 %", "exit code 1" */
export function hostWord(trans: ITrans, host: IRunHost): string {
  const words: { readonly [phase: string]: string } = {
    waiting: trans.__('waiting'),
    connecting: trans.__('connecting'),
    'receiving files':
      host.total > 0
        ? trans.__('receiving files, %1 %', Math.floor((100 * host.sent) / host.total))
        : trans.__('receiving files'),
    ready: trans.__('ready'),
    running: trans.__('running'),
    reconnecting: trans.__('reconnecting'),
    exited: trans.__('exit code %1', host.code ?? '?'),
    stopped: trans.__('stopped'),
    failed: trans.__('not started'),
    lost: trans.__('lost')
  };
  return words[host.phase] ?? host.phase;
}

/** How long the command has run on a host; empty before its start. While the run is not followed, up to the last news. */
export function elapsed(trans: ITrans, run: IHostsRun, host: IRunHost, now: number): string {
  if (!host.began) {
    return '';
  }
  const until = host.ended || (host.over || run.state !== 'running' ? run.ended || run.at : now);
  return age(trans, host.began, until);
}

/** Whether the hosts may still work, so that the run can be stopped. */
export function canStop(run: IHostsRun): boolean {
  return run.state !== 'ended';
}

/** Whether no process keeps the states up to date, so that the hosts can be asked. */
export function canRefresh(run: IHostsRun): boolean {
  return run.state === 'detached' || run.state === 'left';
}

function isOk(host: IRunHost): boolean {
  return host.phase === 'exited' && host.code === 0;
}

function isFailed(host: IRunHost): boolean {
  return host.phase === 'failed' || host.phase === 'lost' || (host.phase === 'exited' && host.code !== 0);
}

/** Whether the user ended it: no host failed by itself. */
function wasStopped(run: IHostsRun): boolean {
  return run.hosts.some(host => host.phase === 'stopped') && !run.hosts.some(isFailed);
}
