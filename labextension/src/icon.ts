/** The package's mark: paths from a notebook to two chips, in colors that are visible on light and dark. */
import { LabIcon } from '@jupyterlab/ui-components';

const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path fill="none" stroke="#808080" stroke-width="2" d="M5 12C10 12 8 6.5 14 6.5M5 12C10 12 8 17.5 14 17.5"/>
  <circle cx="4.5" cy="12" r="3" fill="#d97706"/>
  <path fill="#2f7de1" fill-rule="evenodd" d="M13 2.5a1 1 0 0 1 1-1h8a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1h-8a1 1 0 0 1-1-1zM16 4.5v4h4v-4z"/>
  <path fill="#0f9d7a" fill-rule="evenodd" d="M13 13.5a1 1 0 0 1 1-1h8a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1h-8a1 1 0 0 1-1-1zM16 15.5v4h4v-4z"/>
</svg>`;

export const pathwaysIcon = new LabIcon({ name: 'pathways-jupyter:icon', svgstr });

/** The icon as a data URL. */
export const iconUrl = () => `data:image/svg+xml,${encodeURIComponent(svgstr)}`;
