/** Types of lock.mjs for TypeScript that takes a lock of its own. */
export function lockName(folder?: string): string;
export function withSetupLock<T>(work: () => Promise<T>, options?: { name?: string; onWait?: () => void }): Promise<T>;
