/** One section of the panel: a React view under a title that folds it. */
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

export class SectionWidget extends ReactWidget {
  constructor(
    readonly name: string,
    label: string,
    private readonly _body: () => React.JSX.Element
  ) {
    super();
    this.id = `pathways-jupyter-${name}`;
    this.addClass('jp-Pathways');
    this.addClass('pw-section');
    this.title.label = label;
    this.title.dataset = { title: name };
    this.node.dataset.section = name;
    // Its content may be longer than the section and contain nothing that takes the focus.
    this.node.tabIndex = 0;
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.update();
  }

  /** A section that is folded, or hidden with all others, has no content: it costs nothing when the cluster changes. */
  protected override render(): React.JSX.Element | null {
    return this.isHidden || this.parent?.isHidden
      ? null
      : React.createElement('div', { className: 'pw-body' }, this._body());
  }
}
