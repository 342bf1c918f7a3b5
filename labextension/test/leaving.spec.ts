import { leaving } from '../src/models/leaving';
import { Model } from '../src/models/model';
import { ISession } from '../src/models/sessionrows';
import { english } from '../src/models/trans';
import { session } from './rows';

const HOLDS = session({
  id: 's',
  notebook: 'work/train.ipynb',
  instances: { 'tpuv6e:2x2': 2 },
  suspend_after: 0,
  verdicts: { suspend: { does: 'does', sentence: '', hint: '' } }
});

function asker(...sessions: ISession[]) {
  const model = new Model('1');
  model.apply({ type: 'hello', version: '1' });
  model.apply({ type: 'sessions', sessions, ended: [] });
  const said = new Map<string, string>();
  const storage = {
    getItem: (key: string) => said.get(key) ?? null,
    setItem: (key: string, value: string) => void said.set(key, value)
  };
  return () => leaving(model, storage, english)?.text;
}

describe('leaving the page', () => {
  it('is asked about once for each session that holds slices without a limit', () => {
    const ask = asker(HOLDS, { ...HOLDS, id: 't', notebook: 'other.ipynb', instances: { 'tpuv6e:2x2': 1 } });
    expect(ask()).toBe(
      'train.ipynb holds 2 slices also while this window is closed, without a limit. ' +
        'Suspend saves its arrays and frees them.'
    );
    expect(ask()).toContain('other.ipynb holds 1 slice also');
    expect(ask()).toBeUndefined();
  });

  it.each([
    ['suspends by itself', { suspend_after: 600 }],
    ['has no slices', { state: 'suspended' as const }],
    ['has ended', { alive: false }],
    ['does not answer', { silent: true }],
    ['cannot be suspended', { verdicts: {} }]
  ])('is not asked about if the session %s', (_, change) => {
    expect(asker({ ...HOLDS, ...change })()).toBeUndefined();
  });
});
