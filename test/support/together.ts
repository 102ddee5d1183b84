/** Runs tasks side by side. All of them end before this does, even if one fails: then it rejects with the first error. */
export async function together<T>(tasks: readonly Promise<T>[]): Promise<readonly T[]> {
  const results = await Promise.allSettled(tasks);
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
