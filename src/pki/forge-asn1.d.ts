// node-forge's ASN.1 alone: the whole library takes three times as long to load, and nothing else of it is used.
declare module 'node-forge/lib/asn1.js' {
  interface Asn1 {
    readonly tagClass: number;
    readonly type: number;
    /** Primitive values are strings of one character for each byte. */
    readonly value: string | Asn1[];
  }
  interface ByteBuffer {
    getBytes(): string;
  }
  const asn1: {
    create(tagClass: number, type: number, constructed: boolean, value: string | Asn1[]): Asn1;
    fromDer(bytes: string, options: { strict: boolean; parseAllBytes: boolean; decodeBitStrings: boolean }): Asn1;
    toDer(node: Asn1): ByteBuffer;
    oidToDer(oid: string): ByteBuffer;
    derToOid(bytes: string): string;
  };

  export type { Asn1 };
  export default asn1;
}
