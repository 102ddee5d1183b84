/** A CA that signs at once, and otherwise fails as it is told. */
import { type Clock, sleep } from '../clock.js';
import { SdsdError } from '../errors.js';
import {
  type Certificate,
  generatePrivateKey,
  type Issuer,
  issueCertificate,
  issuerOf,
  parseCertificate,
  parseCsr,
  randomSerialNumber,
  selfSign,
  subjectPublicKeyInfo,
} from '../pki/index.js';
import type { CaClient, SignedChain, SigningRequest } from '../secrets/ca-client.js';

/** How it fails. `down`: refuses; `hang`: never answers; all others: answers with something that must not be used. */
export type CaFault =
  | 'down'
  | 'hang'
  | 'wrong-key'
  | 'wrong-san'
  | 'expired'
  | 'not-yet-valid'
  | 'empty-chain'
  | 'root-only'
  | 'wrong-order'
  | 'foreign-root';

interface Authority {
  readonly root: Certificate;
  readonly rootIssuer: Issuer;
  readonly intermediate: Certificate;
  readonly issuer: Issuer;
}

const DAY = 86_400_000;
const BACKDATE = 60_000;

export class TestCa implements CaClient {
  readonly description = 'test CA';
  /** Undefined: it works. */
  fault: CaFault | undefined;
  /** Milliseconds that each answer takes. */
  latency = 0;
  /** Lifetime that is granted, in ms, whatever was asked for; undefined: what was asked for. */
  grantedTtl: number | undefined;
  /** Answers only when this says so, for one identity: false refuses. */
  allows: (san: string) => boolean = () => true;
  /** Every call: when, and for whom. */
  readonly calls: { readonly at: number; readonly san: string }[] = [];
  /** Calls without an answer so far, and the most there ever were. */
  inFlight = 0;
  mostInFlight = 0;
  readonly #clock: Clock;
  #authority: Authority;
  #foreign: Authority | undefined;

  private constructor(clock: Clock, authority: Authority) {
    this.#clock = clock;
    this.#authority = authority;
  }

  /** @param lifetime of its root and intermediate, in milliseconds; default: a hundred years. */
  static async create(clock: Clock, { lifetime = 36_500 * DAY }: { lifetime?: number } = {}): Promise<TestCa> {
    return new TestCa(clock, await makeAuthority(clock.now(), lifetime));
  }

  /** The root that it stands for now. */
  get root(): Certificate {
    return this.#authority.root;
  }

  /** Signs under a new root from now on. */
  async newRoot(): Promise<Certificate> {
    this.#authority = await makeAuthority(this.#clock.now());
    return this.root;
  }

  async sign(request: SigningRequest, signal: AbortSignal): Promise<SignedChain> {
    const san = request.sans[0] ?? '';
    this.calls.push({ at: this.#clock.now(), san });
    this.inFlight += 1;
    this.mostInFlight = Math.max(this.mostInFlight, this.inFlight);
    try {
      // What it answers is decided when it is asked, as with a real one.
      const answer = await this.#answer(request, san, signal);
      if (this.latency > 0) await sleep(this.#clock, this.latency, signal);
      return answer;
    } finally {
      this.inFlight -= 1;
    }
  }

  async roots(): Promise<readonly Certificate[] | undefined> {
    return undefined;
  }

  close(): void {
    this.fault = 'down';
  }

  async #answer(request: SigningRequest, san: string, signal: AbortSignal): Promise<SignedChain> {
    const { fault } = this;
    if (fault === 'down' || !this.allows(san)) throw new SdsdError('ERR_SDSD_CA', 'test CA is down');
    if (fault === 'hang') {
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));
    }
    const authority = this.#authority;
    const signer = fault === 'foreign-root' ? await this.#foreignAuthority() : authority;
    const leaf = await this.#leaf(request, san, signer);
    const chains: Readonly<Partial<Record<CaFault, Certificate[]>>> = {
      'empty-chain': [],
      'root-only': [authority.root],
      'wrong-order': [signer.intermediate, leaf],
    };
    const chain = (fault && chains[fault]) ?? [leaf, signer.intermediate];
    return { chain, roots: [authority.root] };
  }

  async #leaf(request: SigningRequest, san: string, { issuer }: Authority): Promise<Certificate> {
    const { fault } = this;
    const now = this.#clock.now();
    const otherKey = fault === 'wrong-key' ? await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' }) : undefined;
    const shift = fault === 'expired' ? -2 * DAY : fault === 'not-yet-valid' ? DAY : 0;
    const ttl = this.grantedTtl ?? request.ttl;
    const der = issueCertificate(
      {
        subject: {},
        subjectPublicKeyInfo: otherKey ? subjectPublicKeyInfo(otherKey) : parseCsr(request.csr).subjectPublicKeyInfo,
        serialNumber: randomSerialNumber(),
        notBefore: now + shift - BACKDATE,
        notAfter: now + shift + ttl,
        uriSans: [fault === 'wrong-san' ? `${san}-of-another` : san],
        profile: { kind: 'leaf' },
      },
      issuer,
    );
    return parseCertificate(der);
  }

  async #foreignAuthority(): Promise<Authority> {
    this.#foreign ??= await makeAuthority(this.#clock.now());
    return this.#foreign;
  }
}

async function makeAuthority(now: number, lifetime = 36_500 * DAY): Promise<Authority> {
  const rootKey = await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' });
  const key = await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' });
  const template = (name: string) => {
    const serialNumber = randomSerialNumber();
    return {
      subject: { commonName: `test CA ${name} ${serialNumber.subarray(0, 4).toString('hex')}` },
      serialNumber,
      notBefore: now - BACKDATE,
      notAfter: now + lifetime,
      uriSans: [],
    };
  };
  const root = parseCertificate(
    selfSign(
      {
        ...template('root'),
        subjectPublicKeyInfo: subjectPublicKeyInfo(rootKey),
        profile: { kind: 'ca' },
      },
      rootKey,
    ),
  );
  const rootIssuer = issuerOf(root, rootKey);
  const intermediate = parseCertificate(
    issueCertificate(
      {
        ...template('intermediate'),
        subjectPublicKeyInfo: subjectPublicKeyInfo(key),
        profile: { kind: 'ca', pathLength: 0 },
      },
      rootIssuer,
    ),
  );
  return { root, rootIssuer, intermediate, issuer: issuerOf(intermediate, key) };
}
