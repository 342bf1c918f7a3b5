/** The user's settings, for plugins that follow them. */
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { IPreferences, preferences } from '../models/preferences';
import { SETTINGS } from '../tokens';

/** Call `apply` with the settings once they are loaded, and after each change; never without a registry. */
export async function followPreferences(
  registry: ISettingRegistry | null,
  apply: (wanted: IPreferences) => void
): Promise<void> {
  const settings = await registry?.load(SETTINGS);
  const read = () => settings && apply(preferences(settings.composite));
  settings?.changed.connect(read);
  read();
}
