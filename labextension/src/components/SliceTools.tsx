/** The tools above the slices: map or list, and for many slices a filter and two sizes. */
import * as React from 'react';

import { IPanelView } from '../models/remembered';
import { ITrans } from '../models/trans';
import { LinkButton } from './Button';

export interface ISliceToolsProps {
  readonly place: string;
  /** Number of slices. */
  readonly total: number;
  /** Number of slices that fit the filter. */
  readonly shown: number;
  /** Whether there are so many slices that a filter and a size help. */
  readonly many: boolean;
  readonly look: IPanelView;
  readonly set: (some: Partial<IPanelView>) => void;
  readonly trans: ITrans;
}

export function SliceTools(props: ISliceToolsProps): React.JSX.Element {
  const { place, total, shown, many, look, set, trans } = props;
  return (
    <div className={many ? 'pw-tools' : ''}>
      <div className="pw-row pw-oneline">
        <span className="pw-muted" title={place}>
          {place && trans.__('in %1', place)}
        </span>
        {total > 0 && (
          <span className="pw-links">
            {many && !look.list && (
              <LinkButton
                label={look.zoom === 'chips' ? trans.__('Small') : trans.__('Chips')}
                name={look.zoom === 'chips' ? trans.__('Show small slices') : trans.__('Show slices with chips')}
                run={() => set({ zoom: look.zoom === 'chips' ? 'compact' : 'chips' })}
              />
            )}
            <LinkButton
              label={look.list ? trans.__('Map') : trans.__('List')}
              name={look.list ? trans.__('Show as a map') : trans.__('Show as a list')}
              run={() => set({ list: !look.list })}
            />
          </span>
        )}
      </div>
      {many && (
        <div className="pw-filter" role="search">
          <input
            type="search"
            value={look.filter}
            placeholder={trans.__('mine, free, down, 7, 10-19…')}
            aria-label={trans.__('Filter slices by number, state or owner')}
            spellCheck={false}
            onChange={event => set({ filter: event.target.value })}
          />
          <span className="pw-muted" role="status">
            {look.filter && trans.__('%1 of %2', shown, total)}
          </span>
        </div>
      )}
    </div>
  );
}
