import {
  canRefresh,
  canStop,
  elapsed,
  hostsWords,
  hostTone,
  hostWord,
  runTone,
  runWord
} from '../src/models/hostsruns';
import { Model } from '../src/models/model';
import { english } from '../src/models/trans';
import { hostsRun, runHost } from './rows';

const OK = runHost('0-1', { phase: 'exited', over: true, code: 0, ended: 130 });
const BAD = runHost('0-2', { phase: 'exited', over: true, code: 3 });
const STOPPED = runHost('0-3', { phase: 'stopped', over: true, code: 143 });
const LOST = runHost('0-4', { phase: 'lost', over: true, code: 255, message: 'The connection was cut.' });

describe('A run', () => {
  it.each([
    [hostsRun(), 'Running', 'ok'],
    [hostsRun({ hosts: [runHost('0-0'), BAD] }), 'Running', 'fail'],
    [hostsRun({ state: 'detached' }), 'Detached', 'wait'],
    [hostsRun({ state: 'left' }), 'Not followed', 'wait'],
    [hostsRun({ state: 'ended', code: 0, hosts: [OK] }), 'Completed', 'ok'],
    [hostsRun({ state: 'ended', code: 143, hosts: [STOPPED] }), 'Stopped', 'none'],
    // The others are stopped because one has failed; the user did not stop this run.
    [hostsRun({ state: 'ended', code: 3, hosts: [STOPPED, BAD] }), 'Failed, exit code 3', 'fail']
  ])('has a word and a tone: %#', (run, word, tone) => {
    expect([runWord(english, run), runTone(run)]).toEqual([word, tone]);
  });

  it('counts its hosts by what became of them', () => {
    const hosts = [runHost('0-0'), OK, BAD, LOST, STOPPED, runHost('1-0', { phase: 'connecting', began: 0 })];
    expect(hostsWords(english, hostsRun({ hosts }))).toBe(
      '6 hosts: 1 running, 1 ok, 2 failed, 1 stopped, 1 not started'
    );
    expect(hostsWords(english, hostsRun())).toBe('1 host: 1 running');
  });

  it('can be stopped until it has ended, and brought up to date while no process follows it', () => {
    const states = (['running', 'detached', 'left', 'ended'] as const).map(state => hostsRun({ state }));
    expect(states.map(canStop)).toEqual([true, true, true, false]);
    expect(states.map(canRefresh)).toEqual([false, true, true, false]);
  });
});

describe('A host', () => {
  it.each([
    [runHost('0-0'), 'running', 'ok'],
    [runHost('0-0', { phase: 'receiving files', sent: 1, total: 3 }), 'receiving files, 33 %', 'wait'],
    [runHost('0-0', { phase: 'receiving files' }), 'receiving files', 'wait'],
    [OK, 'exit code 0', 'ok'],
    [BAD, 'exit code 3', 'fail'],
    [STOPPED, 'stopped', 'none'],
    [LOST, 'lost', 'fail'],
    [runHost('0-0', { phase: 'of a later version' }), 'of a later version', 'wait']
  ])('has a word and a tone: %#', (host, word, tone) => {
    expect([hostWord(english, host), hostTone(host)]).toEqual([word, tone]);
  });

  it('has run until now, its end, or the last news of it', () => {
    const [running, waiting] = [runHost('0-0'), runHost('0-0', { began: 0 })];
    expect(elapsed(english, hostsRun(), running, 145)).toBe('45\u00a0s');
    expect(elapsed(english, hostsRun(), waiting, 145)).toBe('');
    expect(elapsed(english, hostsRun(), OK, 145)).toBe('30\u00a0s');
    // No process follows the run, so whether the host still works is not known.
    expect(elapsed(english, hostsRun({ state: 'left', at: 120 }), running, 145)).toBe('20\u00a0s');
  });
});

describe('Model', () => {
  it('keeps the runs, the newest first, and forgets them when the server starts again', () => {
    const model = new Model('1');
    const changes: string[] = [];
    model.changed.connect((_, facet) => changes.push(facet));
    const send = (reset: boolean, put: ReturnType<typeof hostsRun>[], drop: string[] = []) =>
      model.apply({ type: 'multihost', reset, put, drop });
    send(true, [hostsRun({ id: 'a', started: 1 }), hostsRun({ id: 'b', started: 2 })]);
    send(false, [hostsRun({ id: 'a', started: 1, state: 'ended', code: 0 }), hostsRun({ id: 'c', started: 3 })], ['b']);
    expect(model.hostsRuns.map(run => [run.id, run.state])).toEqual([
      ['c', 'running'],
      ['a', 'ended']
    ]);
    send(true, []);
    expect(model.hostsRuns).toEqual([]);
    expect(changes).toEqual(['runs', 'runs', 'runs']);
  });
});
