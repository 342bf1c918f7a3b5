import { Log, matching } from '../src/models/log';

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

describe('matching', () => {
  it('ignores case, and surrounding blanks', () => {
    expect(matching(['One', 'two'], 'ONE')).toEqual(['One']);
    expect(matching(['One', 'two'], ' ')).toEqual(['One', 'two']);
  });
});
