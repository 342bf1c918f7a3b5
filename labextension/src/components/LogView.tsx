/** One log: follow, search and download it. */
import * as React from 'react';

import { Log, matching } from '../models/log';
import { ITrans } from '../models/trans';
import { Button } from './Button';
import { Notice } from './Notice';

export function LogView({ log, trans }: { log: Log; trans: ITrans }): React.JSX.Element {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  const [follow, setFollow] = React.useState(true);
  const [words, setWords] = React.useState('');
  const box = React.useRef<HTMLPreElement>(null);
  React.useEffect(() => {
    let frame = 0;
    const changed = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        draw();
      });
    };
    log.changed.connect(changed);
    return () => {
      log.changed.disconnect(changed);
      cancelAnimationFrame(frame);
    };
  }, [log]);
  React.useEffect(() => {
    void log.read(follow);
    return () => log.stop();
  }, [log, follow]);
  const lines = matching(log.lines, words);
  React.useLayoutEffect(() => {
    if (follow && box.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [lines, follow]);
  return (
    <div className="pw-log">
      <div className="pw-toolbar" role="toolbar" aria-label={trans.__('Log')}>
        <label className="pw-check">
          <input type="checkbox" checked={follow} onChange={event => setFollow(event.target.checked)} />
          {trans.__('Follow')}
        </label>
        <input
          className="jp-mod-styled"
          type="search"
          aria-label={trans.__('Search in this log')}
          placeholder={trans.__('Search')}
          value={words}
          onChange={event => setWords(event.target.value)}
        />
        <span role="status" className="pw-muted">
          {words
            ? trans._n('%1 line matches', '%1 lines match', lines.length)
            : trans._n('%1 line', '%1 lines', lines.length)}
          {log.state === 'ended' ? trans.__(' · ended') : ''}
          {log.dropped > 0 ? trans.__(' · %1 older lines are not shown', log.dropped) : ''}
        </span>
        <Button label={trans.__('Download')} run={() => download(log)} />
      </div>
      {log.problem && <Notice tone="fail" title={log.problem.message} hint={log.problem.hint} />}
      <pre ref={box} tabIndex={0} aria-label={trans.__('Log of %1', log.name)}>
        {lines.join('\n')}
      </pre>
    </div>
  );
}

function download(log: Log): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([log.text], { type: 'text/plain' }));
  link.download = `${log.name}.log`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
