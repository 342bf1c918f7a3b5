/** The panel in the sidebar: a toolbar, notices, and sections that fold, resize, and are remembered. */
import { IStateDB } from '@jupyterlab/statedb';
import { AccordionToolbar, ReactWidget, SidePanel, Toolbar } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { AccordionPanel, PanelLayout, Title, Widget } from '@lumino/widgets';

import { IArrangement, arrangement } from '../models/arrangement';
import { SectionWidget } from './section';

const ARRANGEMENT = 'pathways-jupyter:sections';

export interface IPanelOptions {
  readonly label: string;
  readonly tools: readonly (readonly [name: string, tool: Widget])[];
  readonly notices: ReactWidget;
  readonly sections: readonly SectionWidget[];
  /** The arrangement until the user has made one. */
  readonly first: IArrangement;
  readonly state: IStateDB | null;
  /** Called when the panel becomes visible, and when it is hidden. */
  readonly onLooking: (looking: boolean) => void;
}

export class PathwaysPanel extends SidePanel {
  constructor(private readonly _options: IPanelOptions) {
    const renderer = new ButtonRenderer();
    const accordion = new AccordionPanel({ layout: AccordionToolbar.createLayout({ renderer }) });
    super({ content: accordion, toolbar: new Toolbar() });
    this._accordion = accordion;
    const { label, tools, notices, sections, first, state } = _options;
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
    (this.layout as PanelLayout).insertWidget(1, notices);
    for (const section of sections) {
      section.setHidden(first.folded.includes(section.name));
      this.addWidget(section);
    }
    this._accordion.setRelativeSizes([...first.sizes]);
    this._accordion.expansionToggled.connect(() => this._save());
    this._accordion.handleMoved.connect(() => this._save());
    document.addEventListener('visibilitychange', this._look);
    void state?.fetch(ARRANGEMENT).then(saved => this._restore(arrangement(saved, sections.length)));
  }

  override dispose(): void {
    document.removeEventListener('visibilitychange', this._look);
    super.dispose();
  }

  /** Show the sections, or only the notices. */
  setUsable(usable: boolean): void {
    this.content.setHidden(!usable);
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
    const first = this.content.isHidden ? this.node.querySelector('button') : this._accordion.titles[0];
    first?.focus();
  }

  private _restore(saved: IArrangement | null): void {
    if (!saved) {
      return;
    }
    this._restoring = true;
    this._options.sections.forEach((section, index) => {
      if (saved.folded.includes(section.name)) {
        this._accordion.collapse(index);
      } else {
        this._accordion.expand(index);
      }
    });
    this._accordion.setRelativeSizes([...saved.sizes]);
    this._restoring = false;
  }

  private _save(): void {
    if (this._restoring || !this._options.state) {
      return;
    }
    const folded = this._options.sections.filter(section => section.isHidden).map(section => section.name);
    void this._options.state.save(ARRANGEMENT, { folded, sizes: this._accordion.relativeSizes() });
  }

  private readonly _look = () => this._options.onLooking(this.isVisible && !document.hidden);
  private readonly _accordion: AccordionPanel;
  private _restoring = false;
}

/** Titles as buttons: JupyterLab's headings have a state and the focus, but no role that a screen reader announces. */
class ButtonRenderer extends AccordionToolbar.Renderer {
  override createSectionTitle(data: Title<Widget>): HTMLElement {
    const heading = super.createSectionTitle(data);
    const title = document.createElement('div');
    title.className = heading.className;
    title.id = heading.id;
    title.tabIndex = 0;
    title.setAttribute('role', 'button');
    Object.assign(title.dataset, heading.dataset);
    title.append(...heading.childNodes);
    return title;
  }
}
