import { acts, isOffered, mayHaveArrays, sessionName, verdictSentence } from '../src/models/sessions';
import { session } from './rows';

const STATES = [
  'starting',
  'waiting',
  'connected',
  'degraded',
  'interrupted',
  'lost',
  'suspending',
  'suspended',
  'resuming',
  'closing',
  'closed',
  'failed'
] as const;

describe('A session', () => {
  it('is called like its notebook, else by its id', () => {
    expect(sessionName({ id: 'ab', notebook: 'work/train.ipynb' })).toBe('train.ipynb');
    expect(sessionName({ id: 'ab', notebook: '' })).toBe('ab');
  });

  it('may have arrays in some states only', () => {
    expect(STATES.filter(state => mayHaveArrays({ state }))).toEqual([
      'connected',
      'degraded',
      'interrupted',
      'suspending',
      'resuming'
    ]);
  });

  it('has a button for what acts, perhaps after a question, and a disabled one for what waits', () => {
    const sentence = 'Session s is being suspended: 1.2 GB of 4.0 GB.';
    const verdicts = {
      connect: { does: 'does', sentence: '', hint: '' },
      disconnect: { does: 'asks', sentence, hint: 'Interrupt leaves it as it was.' },
      reconnect: { does: 'waits', sentence, hint: '' },
      resume: { does: 'refuses', sentence, hint: '' }
    } as const;
    const suspending = session({ state: 'suspending', verdicts });
    const commands = ['connect', 'disconnect', 'reconnect', 'resume', 'suspend'] as const;
    expect(commands.filter(each => acts(suspending, each))).toEqual(['connect', 'disconnect']);
    expect(commands.filter(each => isOffered(suspending, each))).toEqual(['connect', 'disconnect', 'reconnect']);
    expect(verdictSentence(suspending, 'disconnect')).toBe(`${sentence} Interrupt leaves it as it was.`);
    expect(verdictSentence(suspending, 'reconnect')).toBe(sentence);
    expect(verdictSentence(suspending, 'connect')).toBe('');
  });
});
