/** Fault drill: breaking a slice on purpose, on the embedded cluster only. */
import { IService, ISlice } from './wire';

export type DrillAction = 'break' | 'heal';

/** How long a slice stays broken at most; the server's BREAK_SECONDS. */
export const BREAK_SECONDS = 60;

/** Return what can be done with a slice; null on a real cluster. */
export function drillAction(slice: ISlice, services: readonly IService[]): DrillAction | null {
  // The id of a slice is that of its service, and its number.
  const service = services.find(each => `${each.id}/${slice.number}` === slice.id);
  if (!service?.embedded) {
    return null;
  }
  return slice.health === 'ready' ? 'break' : 'heal';
}
