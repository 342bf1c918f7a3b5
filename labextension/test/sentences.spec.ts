import { readFileSync } from 'fs';

import { problemOf, sentenceOf } from '../src/models/sentences';
import { entries } from '../src/models/timeline';
import { english, ITrans } from '../src/models/trans';
import { IEvent, ISaid } from '../src/models/wire';

/** The translations that this package ships. */
const CATALOGUE = JSON.parse(
  readFileSync(`${__dirname}/../../pathways_jupyter/locale/de_DE/LC_MESSAGES/pathways_jupyter.json`, 'utf-8')
) as { [text: string]: string[] | undefined };

const german: ITrans = {
  ...english,
  pgettext: (context, text) => CATALOGUE[`${context}\u0004${text}`]?.[0] ?? text
};
const SLICE: ISaid = { message: 'Slice 3 (your 0)', text: { code: 'slice-of-both', values: { number: 3, index: 0 } } };
const DOWN: ISaid = { message: 'Slice 3 (your 0) is down.', text: { code: 'slice-down', values: { slice: SLICE } } };

describe('A sentence of the server', () => {
  it('is composed of a code and its parameters, which may be sentences', () => {
    expect(sentenceOf(german, DOWN)).toBe('Slice 3 (deine 0) ist ausgefallen.');
  });

  it('may have several sentences as one parameter', () => {
    const holds = (holder: string): ISaid => ({
      message: `${holder} holds 1 for 3 min`,
      text: { code: 'holds', values: { holder, number: 1, time: '3 min' } }
    });
    const found = { message: '', text: { code: 'some-free', values: { number: 0, all: 2, service: 'tpus' } } };
    const wanted = { message: '', text: { code: 'one-wanted', values: {} } };
    const values = { found, wanted, holders: [holds('joe'), holds('jane')] };
    expect(sentenceOf(german, { message: '', text: { code: 'short-of-slices-held', values } })).toBe(
      '0 von 2 Slices von tpus sind frei, 1 wird gebraucht: joe hält 1 seit 3 min; jane hält 1 seit 3 min.'
    );
  });

  it('is as the server says it where there is no translation', () => {
    expect(sentenceOf(english, DOWN)).toBe(DOWN.message);
    expect(sentenceOf(german, { message: 'News.', text: { code: 'of-a-later-version', values: {} } })).toBe('News.');
    expect(sentenceOf(german, { message: 'Without a code.' })).toBe('Without a code.');
  });

  it('leaves a parameter in braces that it has not got', () => {
    expect(sentenceOf(german, { message: '', text: { code: 'pod-ready', values: {} } })).toBe('Pod {pod} ist bereit.');
  });

  it('is translated in the timeline', () => {
    const event: IEvent = { ...DOWN, kind: 'slice-down', at: 1, data: { slice: 0, number: 3 } };
    expect(entries(german, [event]).map(each => each.text)).toEqual(['Slice 3 (deine 0) ist ausgefallen.']);
  });
});

test('a problem has message and hint translated', () => {
  const problem = {
    message: 'There is no session ab.',
    text: { code: 'no-session', values: { session: 'ab' } },
    hint: 'It may have ended in the meantime.',
    hint_text: { code: 'no-session-hint', values: {} },
    nothing_set_up: false
  };
  expect(problemOf(german, problem)).toMatchObject({
    message: 'Es gibt keine Sitzung ab.',
    hint: 'Sie kann inzwischen zu Ende sein.',
    nothing_set_up: false
  });
});
