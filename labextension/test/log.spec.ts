import { Log, logKey, LogSource, matching } from '../src/models/log';
import { SCOPE } from './rows';

describe('Log', () => {
  it('takes nothing of a reading that has been ended', async () => {
    const chunks: ((text: string) => void)[] = [];
    const log = new Log('p', (_, take) => {
      chunks.push(take);
      return new Promise(() => undefined);
    });
    void log.read(true);
    chunks[0]('one\n');
    expect(log.lines).toEqual(['one']);
    void log.read(false);
    chunks[0]('two\n');
    chunks[1]('one\n');
    expect(log.lines).toEqual(['one']);
    await Promise.resolve();
  });
});

describe('logKey', () => {
  it('differs for whatever differs', () => {
    const scope = { ...SCOPE, namespace: 'other' };
    const sources: LogSource[] = [
      { pod: 'x', scope: SCOPE },
      { pod: 'x', scope },
      { job: 'x', scope }
    ];
    expect(new Set(sources.map(logKey)).size).toBe(sources.length);
    expect(logKey({ pod: 'x', scope: { ...SCOPE } })).toBe(logKey(sources[0]));
  });
});

describe('matching', () => {
  it('ignores case, and surrounding blanks', () => {
    expect(matching(['One', 'two'], 'ONE')).toEqual(['One']);
    expect(matching(['One', 'two'], ' ')).toEqual(['One', 'two']);
  });
});
