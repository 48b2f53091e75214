/**
 * One line per set-up step, with elapsed seconds. On a terminal the line counts up while the step runs; elsewhere (CI, a pipe) it is
 * printed once at the start and once at the end, so that a log stays short.
 */

/** @param {number} total number of steps */
export function startProgress(total, output = process.stderr) {
  let number = 0;
  return {
    /** Counts a step that has nothing to do. */
    skip(title, why) {
      number += 1;
      output.write(`[${number}/${total}] ${title} … ${why}\n`);
    },
    /**
     * Runs `work` as the next step. `work` gets `say(text)`, which changes what the line shows after the dots.
     * @template T @param {string} title @param {(say: (text: string) => void) => Promise<T>} work @returns {Promise<T>}
     */
    async step(title, work) {
      number += 1;
      const started = Date.now();
      let doing = 'working';
      let shown = '';
      const line = (text) => `[${number}/${total}] ${title} … ${text}`;
      const seconds = () => `${((Date.now() - started) / 1000).toFixed(1)} s`;
      const draw = () => {
        if (output.isTTY) output.write(`\r\x1b[2K${line(`${doing} (${seconds()})`).slice(0, (output.columns ?? 80) - 1)}`);
        else if (doing !== shown && doing !== 'working') output.write(`${line(doing)}\n`);
        shown = doing;
      };
      const finish = (text) => output.write(`${output.isTTY ? '\r\x1b[2K' : ''}${line(text)}\n`);
      const timer = output.isTTY ? setInterval(draw, 500) : undefined;
      try {
        const result = await work((text) => {
          doing = text;
          draw();
        });
        finish(`done (${seconds()})`);
        return result;
      } catch (error) {
        finish(`failed (${seconds()})`);
        throw error;
      } finally {
        clearInterval(timer);
      }
    },
  };
}
