/** The panel in the sidebar: a toolbar, notices, and the sections below them. */
import { ReactWidget, SidePanel, Toolbar } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { Panel, Widget } from '@lumino/widgets';

export interface IPanelOptions {
  readonly label: string;
  readonly tools: readonly (readonly [name: string, tool: Widget])[];
  readonly notices: ReactWidget;
  readonly sections: ReactWidget;
  /** Called when the panel becomes visible, and when it is hidden. */
  readonly onLooking: (looking: boolean) => void;
}

export class PathwaysPanel extends SidePanel {
  constructor(private readonly _options: IPanelOptions) {
    super({ content: new Panel(), toolbar: new Toolbar() });
    const { label, tools, notices, sections } = _options;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', label);
    this.content.node.removeAttribute('role');
    this.content.node.removeAttribute('aria-label');
    this.toolbar.node.setAttribute('aria-label', label);
    const heading = new Widget({ node: document.createElement('h2') });
    heading.node.textContent = label;
    heading.addClass('pw-heading');
    this.toolbar.addItem('heading', heading);
    this.toolbar.addItem('spacer', Toolbar.createSpacerItem());
    for (const [name, tool] of tools) {
      this.toolbar.addItem(name, tool);
    }
    notices.addClass('pw-notices');
    sections.addClass('pw-sections');
    for (const part of [notices, sections]) {
      part.addClass('jp-Pathways');
      this.addWidget(part);
    }
    document.addEventListener('visibilitychange', this._look);
  }

  override dispose(): void {
    document.removeEventListener('visibilitychange', this._look);
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._look();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._look();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._look();
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    (this.node.querySelector<HTMLElement>('.pw-title') ?? this.node.querySelector('button'))?.focus();
  }

  private readonly _look = () => this._options.onLooking(this.isVisible && !document.hidden);
}
