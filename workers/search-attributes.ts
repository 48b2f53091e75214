/** The search attributes of runs (workflows/contract.ts): a server that lacks one leaves a workflow that sets it stuck. */
import type { ConnectionLike } from '@temporalio/client';
// CommonJS whose export names Node's static analysis does not find.
import proto from '@temporalio/proto';
import { UserError } from '../environment/errors.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/contract.ts';

const { IndexedValueType } = proto.temporal.api.enums.v1;
const TYPES = {
  Keyword: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
  Double: IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
};

/** Idempotent. Throws UserError when the server does not let us: an operator has to add them then. */
export async function ensureSearchAttributes(
  { operatorService: operator }: Pick<ConnectionLike, 'operatorService'>,
  namespace: string,
): Promise<void> {
  const missing = async (): Promise<[string, keyof typeof TYPES][]> => {
    const { customAttributes } = await operator.listSearchAttributes({ namespace });
    return Object.entries(SEARCH_ATTRIBUTES).filter(([name]) => !(name in customAttributes));
  };
  const lacking = await missing();
  if (lacking.length === 0) return;
  try {
    await operator.addSearchAttributes({
      namespace,
      searchAttributes: Object.fromEntries(lacking.map(([name, type]) => [name, TYPES[type]])),
    });
  } catch (error) {
    // Another process may have been faster.
    if ((await missing()).length === 0) return;
    const list = Object.entries(SEARCH_ATTRIBUTES).map(([name, type]) => `${name}=${type}`);
    const why = error instanceof Error ? error.message : String(error);
    throw new UserError(`cannot register search attributes in namespace ${namespace}: ${why}. Have an operator add ${list.join(', ')}.`);
  }
}
