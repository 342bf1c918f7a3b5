import { bands, chipsPath, hostPlaces, layout, moved, shapeOf, sliceSize } from '../src/models/layout';
import { host, slice } from './rows';

const many = (count: number, hosts: number) =>
  Array.from({ length: count }, (_, index) =>
    slice({ id: `s/${index}`, number: index, hosts: Array(hosts).fill(host()) })
  );

const drawn = (slices: ReturnType<typeof many>, width: number) =>
  layout(slices, width, shapeOf(slices.length, 'compact'));

describe('layout', () => {
  it.each([1, 2, 24, 25, 200, 1000])('fits %i slices into the width, none over another', count => {
    const drawing = drawn(many(count, 4), 300);
    expect(drawing.width).toBeLessThanOrEqual(300);
    const seen = new Set(drawing.places.map(place => `${place.x},${place.y}`));
    expect(seen.size).toBe(count);
    for (const place of drawing.places) {
      const size = sliceSize(place.slice, drawing.shape);
      expect(place.x + size.width).toBeLessThanOrEqual(drawing.width);
      expect(place.y + size.height).toBeLessThanOrEqual(drawing.height);
    }
  });

  it.each([1, 24, 49, 50, 51, 200, 1000])('divides %i slices into bands of whole rows, without gaps', count => {
    const drawing = drawn(many(count, 4), 300);
    const parts = bands(drawing);
    expect(parts.flatMap(band => band.places)).toEqual(drawing.places);
    expect(parts[0].top).toBe(0);
    expect(parts[parts.length - 1].bottom).toBe(drawing.height);
    parts.forEach((band, index) => {
      expect(band.top).toBe(index ? parts[index - 1].bottom : 0);
      for (const place of band.places) {
        expect(place.y).toBeGreaterThanOrEqual(band.top);
        expect(place.y + sliceSize(place.slice, drawing.shape).height).toBeLessThanOrEqual(band.bottom);
      }
    });
    expect(new Set(drawing.places.map(place => place.y)).size).toBe(
      parts.reduce((sum, band) => sum + new Set(band.places.map(place => place.y)).size, 0)
    );
  });

  it('has no bands without slices', () => {
    expect(bands(drawn([], 300))).toEqual([]);
  });

  it('draws a slice that is wider than the panel', () => {
    expect(drawn(many(1, 64), 40).places).toHaveLength(1);
  });

  it('has no size without slices', () => {
    expect(drawn([], 300).height).toBe(0);
  });

  it('puts the hosts of a slice beside and below each other', () => {
    const [place] = drawn(many(1, 4), 300).places;
    const places = hostPlaces(place.slice, drawn(many(1, 4), 300).shape);
    expect(new Set(places.map(({ x, y }) => `${x},${y}`)).size).toBe(4);
  });

  it('draws one square for each chip', () => {
    const { shape } = drawn(many(1, 1), 300);
    expect(chipsPath(host({ chips: 8 }), 0, 0, shape, 'full').match(/z/g)).toHaveLength(8);
  });

  it('draws a host as one large chip where its chips would be too small', () => {
    const small = shapeOf(1000, 'compact');
    const path = chipsPath(host({ chips: 4 }), 0, 0, small, 'hatched');
    expect(path.match(/z/g)).toHaveLength(1);
    expect(path).toContain(`h${2 * small.chip + small.gap}v`);
  });

  it.each([1, 100, 1000])('draws four looks that differ by shape, also where %i slices make them small', count => {
    const { shape } = drawn(many(count, 1), 300);
    const looks = (['full', 'ring', 'hatched', 'hollow'] as const).map(look =>
      chipsPath(host({ chips: 1 }), 0, 0, shape, look)
    );
    // Full and hollow have the same outline and differ in their fill.
    expect(new Set(looks).size).toBe(3);
    const [, hole] = /v(\d+)h-\d+z$/.exec(looks[1])!;
    expect(Number(hole)).toBeGreaterThan(0);
  });
});

describe('shapeOf', () => {
  it('draws many slices small, unless their chips are wanted', () => {
    const chips = [24, 200, 201].map(count => shapeOf(count, 'compact').chip);
    expect(chips).toEqual([...chips].sort((one, other) => other - one));
    expect(new Set(chips).size).toBe(3);
    expect(shapeOf(1000, 'chips')).toEqual(shapeOf(1, 'compact'));
  });
});

describe('moved', () => {
  it.each([
    ['ArrowRight', 0, 1],
    ['ArrowLeft', 0, 0],
    ['ArrowDown', 1, 4],
    ['ArrowUp', 4, 1],
    ['ArrowDown', 5, 5],
    ['Home', 5, 0],
    ['End', 0, 6],
    ['a', 0, null]
  ])('%s leads from slice %i of seven in rows of three to %s', (key, at, to) => {
    expect(moved(key, at, 3, 7)).toBe(to);
  });
});
