import { readFileSync } from 'fs';

import { ISaid, problemOf, sentenceOf } from '../src/models/sentences';
import { entries } from '../src/models/timeline';
import { english, ITrans } from '../src/models/trans';
import { IEvent } from '../src/models/sessionrows';

/** The translations that this package ships. */
const CATALOGUE = JSON.parse(
  readFileSync(`${__dirname}/../../pathways_jupyter/locale/de_DE/LC_MESSAGES/pathways_jupyter.json`, 'utf-8')
) as { [text: string]: string[] | undefined };

const german: ITrans = {
  ...english,
  __: (text, ...values) => english.__(CATALOGUE[text]?.[0] ?? text, ...values),
  pgettext: (context, text) => CATALOGUE[`${context}\u0004${text}`]?.[0] ?? text
};
const SLICE: ISaid = {
  message: 'Slice 3 (your 0)',
  text: { sentence: 'Slice {number} (your {index})', values: { number: 3, index: 0 } }
};
const DOWN: ISaid = {
  message: 'Slice 3 (your 0) is down.',
  text: { sentence: '{slice} is down.', values: { slice: SLICE } }
};

describe('A sentence of the server', () => {
  it('is composed of a template and its parameters, which may be sentences', () => {
    expect(sentenceOf(german, DOWN)).toBe('Slice 3 (deine 0) ist ausgefallen.');
  });

  it('may have several sentences as one parameter', () => {
    const holds = (holder: string): ISaid => ({
      message: `${holder} holds 1 for 3 min`,
      text: { sentence: '{holder} holds {number} for {time}', values: { holder, number: 1, time: '3 min' } }
    });
    const found = {
      message: '',
      text: {
        sentence: '{number} of {all} slices of {service} are free',
        values: { number: 0, all: 2, service: 'tpus' }
      }
    };
    const wanted = { message: '', text: { sentence: '1 is wanted', values: {} } };
    const values = { found, wanted, holders: [holds('joe'), holds('jane')] };
    expect(sentenceOf(german, { message: '', text: { sentence: '{found}, and {wanted}: {holders}.', values } })).toBe(
      '0 von 2 Slices von tpus sind frei, 1 wird gebraucht: joe hält 1 seit 3 min; jane hält 1 seit 3 min.'
    );
  });

  it('is as the server says it where there is no translation', () => {
    expect(sentenceOf(english, DOWN)).toBe(DOWN.message);
    expect(sentenceOf(german, { message: 'News.', text: { sentence: 'News.', values: {} } })).toBe('News.');
    expect(sentenceOf(german, { message: 'Without a template.' })).toBe('Without a template.');
  });

  it('leaves a parameter in braces that it has not got', () => {
    expect(sentenceOf(german, { message: '', text: { sentence: 'Pod {pod} is ready.', values: {} } })).toBe(
      'Pod {pod} ist bereit.'
    );
  });

  it('names commands and fields of the dialog', () => {
    const said = (sentence: string): string => sentenceOf(german, { message: '', text: { sentence, values: {} } });
    expect(said('Add {wait} to get them as soon as they are free, or ask for fewer.')).toBe(
      '„Auf belegte Slices warten“ holt sie, sobald sie frei sind; oder nimm weniger.'
    );
    expect(said('{elastic_inject:slice-down --yes} takes down a slice of your own session there.')).toBe(
      '%pathways elastic inject slice-down --yes lässt dort einen Slice deiner eigenen Sitzung ausfallen.'
    );
  });

  it('is translated in the timeline', () => {
    const event: IEvent = { ...DOWN, kind: 'slice-down', at: 1, data: { slice: 0, number: 3 } };
    expect(entries(german, [event]).map(each => each.text)).toEqual(['Slice 3 (deine 0) ist ausgefallen.']);
  });
});

test('a problem has message and hint translated', () => {
  const problem = {
    message: 'There is no session ab.',
    text: { sentence: 'There is no session {session}.', values: { session: 'ab' } },
    hint: 'It may have ended in the meantime.',
    hint_text: { sentence: 'It may have ended in the meantime.', values: {} },
    nothing_set_up: false
  };
  expect(problemOf(german, problem)).toMatchObject({
    message: 'Es gibt keine Sitzung ab.',
    hint: 'Sie kann inzwischen zu Ende sein.',
    nothing_set_up: false
  });
});
