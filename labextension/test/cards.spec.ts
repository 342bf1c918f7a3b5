import { liveCards } from '../src/models/cards';
import { session } from './rows';

describe('liveCards', () => {
  it('shows only the cards of sessions as live that live', () => {
    const sessions = [
      session({ id: 'a' }),
      session({ id: 'b', alive: false }),
      session({ id: 'c', silent: true }),
      session({ id: 'd', state: 'lost' }),
      session({ id: 'e', state: 'degraded' }),
      session({ id: 'x{} *' })
    ];
    const shown = new Set(liveCards(sessions).match(/pw-live-\S/g));
    expect([...shown]).toEqual(['pw-live-a', 'pw-live-e']);
    expect(liveCards([])).toBe('');
  });
});
