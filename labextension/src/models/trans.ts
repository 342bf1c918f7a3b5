/** As much of a translation bundle as models and views need, so that tests can do without the one of JupyterLab. */
export interface ITrans {
  __(text: string, ...values: (string | number)[]): string;
  _n(one: string, many: string, count: number, ...values: (string | number)[]): string;
}

/** English, for where there is no translator. */
export const english: ITrans = {
  __: (text, ...values) => filled(text, values),
  _n: (one, many, count, ...values) => filled(count === 1 ? one : many, [count, ...values])
};

function filled(text: string, values: (string | number)[]): string {
  return text.replace(/%(\d+)/g, (whole, place) => String(values[Number(place) - 1] ?? whole));
}
