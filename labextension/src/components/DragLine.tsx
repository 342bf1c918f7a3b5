/** The `%pathways connect` line, which can be dragged into a cell. */
import * as React from 'react';

import { connectCell, connectLine, IChoice } from '../models/line';

export function DragLine({ choice, label }: { choice: IChoice; label: string }): React.JSX.Element {
  return (
    <>
      <p className="pw-muted">{label}</p>
      <code
        className="pw-line"
        draggable
        onDragStart={event => {
          event.dataTransfer.setData('text/plain', connectCell(choice));
          event.dataTransfer.effectAllowed = 'copy';
        }}
      >
        <Options line={connectLine(choice)} />
      </code>
    </>
  );
}

/** A command line that wraps between options, never inside one. */
export function Options({ line }: { line: string }): React.JSX.Element {
  const [command, ...options] = line.split(/ (?=--)/);
  return (
    <>
      {command}
      {options.map((option, index) => (
        <React.Fragment key={index}>
          {' '}
          <span>{option}</span>
        </React.Fragment>
      ))}
    </>
  );
}
