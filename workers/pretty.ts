/** pino-pretty is a CommonJS module whose callable default export TypeScript's NodeNext resolution sees as a namespace. */
import * as module from 'pino-pretty';

export const pinoPretty = module.PinoPretty;
