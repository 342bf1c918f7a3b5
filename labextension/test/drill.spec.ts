import { drillAction } from '../src/models/drill';
import { numbered, service } from './rows';

describe('drillAction', () => {
  const embedded = service({ id: 'default/svc', embedded: true });

  it('breaks a slice that is ready, and heals one that is not', () => {
    expect(drillAction(numbered(1), [embedded])).toBe('break');
    expect(drillAction(numbered(1, { health: 'down' }), [embedded])).toBe('heal');
    expect(drillAction(numbered(1, { health: 'starting' }), [embedded])).toBe('heal');
  });

  it('is not offered on a real cluster', () => {
    expect(drillAction(numbered(1), [service({ id: 'default/svc' })])).toBe(null);
    expect(drillAction(numbered(1), [service({ id: 'other/svc', embedded: true })])).toBe(null);
    expect(drillAction(numbered(1), [])).toBe(null);
  });
});
