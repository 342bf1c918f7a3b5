/** States, ages and counts in words. */
import { ITrans } from './trans';
import { Health, ISession, ISlice, SessionState } from './wire';

/** How something looks: the colour and the mark. The word beside it says the same. */
export type Tone = 'ok' | 'wait' | 'fail' | 'none';

export const TONES: { readonly [state in SessionState]: Tone } = {
  starting: 'wait',
  waiting: 'wait',
  connected: 'ok',
  degraded: 'wait',
  lost: 'fail',
  closing: 'wait',
  closed: 'none',
  failed: 'fail'
};

export const HEALTH_TONES: { readonly [health in Health]: Tone } = { ready: 'ok', starting: 'wait', down: 'fail' };

export function stateWord(trans: ITrans, session: ISession): string {
  if (!session.alive) {
    return trans.__('Left behind');
  }
  const words: { [state in SessionState]: string } = {
    starting: trans.__('Connecting'),
    waiting: trans.__('Waiting for slices'),
    connected: trans.__('Connected'),
    degraded: trans.__('Degraded'),
    lost: trans.__('Proxy lost'),
    closing: trans.__('Disconnecting'),
    closed: trans.__('Disconnected'),
    failed: trans.__('Failed')
  };
  return words[session.state];
}

export function healthWord(trans: ITrans, health: Health): string {
  return { ready: trans.__('ready'), starting: trans.__('starting'), down: trans.__('down') }[health];
}

/** Who holds a slice, in words. */
export function holderWord(trans: ITrans, slice: ISlice): string {
  if (!slice.holder) {
    return trans.__('free');
  }
  return slice.holder.mine ? trans.__('mine') : trans.__('held by %1', slice.holder.user || slice.holder.session);
}

/** The time since `then` in its two largest units. */
export function age(trans: ITrans, then: number, now: number): string {
  const seconds = Math.max(0, Math.floor(now - then));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const days = Math.floor(hours / 24);
  if (!minutes) {
    return trans.__('%1 s', seconds);
  }
  if (!hours) {
    return minutes < 10 ? trans.__('%1 min %2 s', minutes, seconds % 60) : trans.__('%1 min', minutes);
  }
  return days ? trans.__('%1 d %2 h', days, hours % 24) : trans.__('%1 h %2 min', hours, minutes % 60);
}

/** The clock's time of an event. */
export function clock(at: number): string {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

export function instancesWord(instances: { readonly [type: string]: number }): string {
  return Object.entries(instances)
    .map(([type, count]) => `${count} × ${type}`)
    .join(', ');
}

/** One sentence for all slices, e.g. for a screen reader. */
export function slicesSentence(trans: ITrans, slices: readonly ISlice[]): string {
  const count = (fits: (slice: ISlice) => boolean) => slices.filter(fits).length;
  const starting = count(slice => slice.health === 'starting');
  const down = count(slice => slice.health === 'down');
  const parts = [
    trans._n('%1 slice', '%1 slices', slices.length),
    trans.__('%1 ready', count(slice => slice.health === 'ready')),
    starting && trans.__('%1 starting', starting),
    down && trans.__('%1 down', down),
    trans.__('%1 mine', count(slice => !!slice.holder?.mine)),
    trans.__('%1 free', count(slice => !slice.holder && slice.health === 'ready'))
  ];
  return parts.filter(Boolean).join(', ');
}
