/** The whole panel: a problem with the connection, if any, then the sections. */
import * as React from 'react';

import { Model } from '../models/model';
import { ITrans } from '../models/trans';
import { IActions } from './actions';
import { EventsSection } from './EventsSection';
import { useModel, useModelValue } from './hooks';
import { JobsSection } from './JobsSection';
import { LinkState } from './LinkState';
import { Section } from './Section';
import { ServicesSection } from './ServicesSection';
import { SessionSection } from './SessionSection';
import { SlicesSection } from './SlicesSection';
import { Welcome } from './Welcome';

export interface IPanelProps {
  readonly model: Model;
  readonly actions: IActions;
  readonly trans: ITrans;
  /** Ids of the sections that are folded initially. */
  readonly folded: readonly string[];
  readonly onFolded: (sections: readonly string[]) => void;
}

export function Panel({ model, actions, trans, folded: first, onFolded }: IPanelProps): React.JSX.Element {
  useModel(model, 'link', 'front');
  const nothingSetUp = useModelValue(model, each => each.nothingSetUp);
  const [folded, setFolded] = React.useState(first);
  const section = (id: string, title: string, body: React.ReactNode) => (
    <Section
      id={id}
      title={title}
      folded={folded.includes(id)}
      onFold={fold => {
        const now = fold ? [...folded, id] : folded.filter(each => each !== id);
        setFolded(now);
        onFolded(now);
      }}
    >
      {body}
    </Section>
  );
  const unusable = model.link.state === 'missing' || model.link.state === 'refused';
  return (
    <div className="pw-panel">
      <h1 className="pw-unseen">{trans.__('Pathways')}</h1>
      <LinkState link={model.link} actions={actions} trans={trans} />
      {nothingSetUp && <Welcome front={model.front} actions={actions} trans={trans} />}
      {!unusable && !nothingSetUp && (
        <>
          {section('session', trans.__('Session'), <SessionSection model={model} actions={actions} trans={trans} />)}
          {section('slices', trans.__('Slices'), <SlicesSection model={model} actions={actions} trans={trans} />)}
          {section('events', trans.__('Events'), <EventsSection model={model} trans={trans} />)}
          {section(
            'services',
            trans.__('Services & proxies'),
            <ServicesSection model={model} actions={actions} trans={trans} />
          )}
          {section('jobs', trans.__('Jobs'), <JobsSection model={model} actions={actions} trans={trans} />)}
        </>
      )}
    </div>
  );
}
