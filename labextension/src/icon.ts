/** The package's mark: paths that lead to four chips. */
import { LabIcon } from '@jupyterlab/ui-components';

const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <rect x="14" y="2" width="8" height="8" rx="1.5"/><rect x="14" y="14" width="8" height="8" rx="1.5"/>
    <circle cx="4.5" cy="12" r="2.5"/>
    <path d="M6 11.2C9.5 10.6 9 5 14 5v2c-3.4 0-2.6 5.2-7.4 6zM6 12.8C9.5 13.4 9 19 14 19v-2c-3.4 0-2.6-5.2-7.4-6z"/>
  </g>
</svg>`;

export const pathwaysIcon = new LabIcon({ name: 'pathways-jupyter:icon', svgstr });

/** The icon as a data URL, in a gray that is visible on light and dark. */
export const iconUrl = () => `data:image/svg+xml,${encodeURIComponent(svgstr.replace('#616161', '#8a8a8a'))}`;
