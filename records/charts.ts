/**
 * The report's plots: ECharts rendered to SVG on the server, so that the page needs no script and no network. Colours are
 * CSS variables of the page (light and dark), put in after rendering because ECharts only takes literal colours.
 */
import * as echarts from 'echarts';
import { escapeHtml, trusted, type Html } from './html.ts';

export interface Series {
  readonly name: string;
  /** One value per x; undefined leaves a gap. */
  readonly values: readonly (number | undefined)[];
  /** Half-length of the error bar at each x. */
  readonly errors?: readonly (number | undefined)[];
  readonly emphasis?: boolean;
  readonly dashed?: boolean;
  /** Place in the palette; the series' own position when absent. */
  readonly colour?: number;
}
export interface ChartOptions {
  /** What the plot shows, for those who cannot see it and as its caption's start. */
  readonly title: string;
  readonly x: readonly string[];
  readonly xName?: string;
  readonly yName?: string;
  readonly series: readonly Series[];
  readonly width?: number;
  readonly height?: number;
  readonly yMin?: number;
  readonly yMax?: number;
}

/** Placeholder → CSS variable. The placeholders are colours that nothing else uses. */
const INK = '#010203';
const MUTED = '#010204';
const GRID = '#010205';
const SERIES = ['#010211', '#010212', '#010213', '#010214', '#010215', '#010216', '#010217', '#010218'];
const VARIABLES = new Map([
  [INK, 'var(--ink)'],
  [MUTED, 'var(--muted)'],
  [GRID, 'var(--grid)'],
  ...SERIES.map((colour, i): [string, string] => [colour, `var(--series-${i + 1})`]),
]);

const FONT = 'system-ui, sans-serif';

/** A line chart with optional error bars, as a `<figure>`. */
export function lineChart(options: ChartOptions): Html {
  const { title, x, series, width = 760, height = 340 } = options;
  const legend = series.length > 1;
  const legendRows = legend ? Math.ceil(series.reduce((sum, { name }) => sum + name.length * 7 + 44, 0) / (width - 80)) : 0;
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width, height });
  try {
    chart.setOption({
      animation: false,
      backgroundColor: 'transparent',
      textStyle: { fontFamily: FONT, color: INK },
      grid: { left: 56, right: 22, top: 18 + 22 * legendRows, bottom: options.xName ? 48 : 32 },
      ...(legend
        ? {
            legend: {
              top: 0,
              left: 0,
              width: width - 20,
              itemGap: 14,
              textStyle: { color: INK, fontFamily: FONT, fontSize: 12 },
              data: series.map(({ name }) => name),
            },
          }
        : {}),
      xAxis: {
        type: 'category',
        data: [...x],
        boundaryGap: x.length < 3,
        name: options.xName ?? '',
        nameLocation: 'middle',
        nameGap: 28,
        nameTextStyle: { color: MUTED },
        axisLine: { lineStyle: { color: MUTED } },
        axisTick: { show: false },
        axisLabel: { color: INK },
      },
      yAxis: {
        type: 'value',
        name: options.yName ?? '',
        nameLocation: 'middle',
        nameRotate: 90,
        nameGap: 40,
        nameTextStyle: { color: MUTED },
        scale: options.yMin === undefined,
        ...(options.yMin === undefined ? {} : { min: options.yMin }),
        ...(options.yMax === undefined ? {} : { max: options.yMax }),
        axisLabel: { color: INK },
        splitLine: { lineStyle: { color: GRID } },
      },
      series: series.flatMap((one, i) => drawn(one, SERIES[(one.colour ?? i) % SERIES.length] ?? INK)),
    });
    const svg = recolour(chart.renderToSVGString());
    return trusted(
      `<figure class="chart"><div role="img" aria-label="${escapeHtml(description(options))}">${svg}</div><figcaption>${escapeHtml(title)}</figcaption></figure>`,
    );
  } finally {
    chart.dispose();
  }
}

function drawn({ name, values, errors, emphasis, dashed }: Series, color: string): echarts.SeriesOption[] {
  const line: echarts.SeriesOption = {
    name,
    type: 'line',
    data: values.map((value) => value ?? '-'),
    symbol: 'circle',
    symbolSize: emphasis ? 8 : 6,
    itemStyle: { color },
    lineStyle: { color, width: emphasis ? 3.5 : 1.8, type: dashed ? 'dashed' : 'solid' },
    z: emphasis ? 4 : 3,
  };
  if (!errors) return [line];
  const bars: echarts.SeriesOption = {
    // The same name: the legend entry stands for both.
    name,
    type: 'custom',
    z: 2,
    data: values.flatMap((value, i) => {
      const error = errors[i];
      return value === undefined || !error ? [] : [[i, value - error, value + error]];
    }),
    renderItem: (_parameters, api) => {
      const low = api.coord([api.value(0), api.value(1)]);
      const high = api.coord([api.value(0), api.value(2)]);
      const [px = 0, bottom = 0] = low;
      const top = high[1] ?? 0;
      const shape = (x1: number, y1: number, x2: number, y2: number) => ({
        type: 'line' as const,
        shape: { x1, y1, x2, y2 },
        style: { stroke: color, lineWidth: 1.4 },
      });
      return {
        type: 'group',
        children: [shape(px, bottom, px, top), shape(px - 4, bottom, px + 4, bottom), shape(px - 4, top, px + 4, top)],
      };
    },
    encode: { x: 0, y: [1, 2] },
  };
  return [line, bars];
}

/** The numbers behind the plot in words, for screen readers. */
function description({ title, x, series }: ChartOptions): string {
  const lines = series.map(
    ({ name, values }) =>
      `${name}: ${values.map((value, i) => `${x[i] ?? i} ${value === undefined ? 'none' : Number(value.toPrecision(4))}`).join(', ')}`,
  );
  return `${title}. ${lines.join('. ')}.`;
}

function recolour(svg: string): string {
  return svg
    .replace(/#0102[01][0-9]/g, (colour) => VARIABLES.get(colour) ?? colour)
    .replace(/rgb\(1,\s?2,\s?(\d+)\)/g, (text, blue: string) => VARIABLES.get(`#0102${Number(blue).toString(16).padStart(2, '0')}`) ?? text)
    .replace(/^<svg width="(\d+)" height="(\d+)"/, '<svg style="max-width: $1px" viewBox="0 0 $1 $2"');
}
