/** The part of JupyterLab's translation bundle that models and views need, so that tests need not load JupyterLab's. */
export interface ITrans {
  __(text: string, ...values: (string | number)[]): string;
  _n(one: string, many: string, count: number, ...values: (string | number)[]): string;
}

/** English texts, used when there is no translator. */
export const english: ITrans = {
  __: (text, ...values) => filled(text, values),
  _n: (one, many, count, ...values) => filled(count === 1 ? one : many, [count, ...values])
};

function filled(text: string, values: (string | number)[]): string {
  return text.replace(/%(\d+)/g, (whole, place) => String(values[Number(place) - 1] ?? whole));
}
