// What the page's data are, for `tsc --checkJs`: pages.py writes them, and of a live page adopt.js makes them of events.

type Kind = "enc" | "dec" | "cross";
type Theme = "light" | "dark";

/** A head of a sentence. The page names its parts, and unpacks its weights when they are drawn. */
interface Head {
  id: string;
  role: string | null;
  metrics: Record<string, number>;
  kind?: Kind;
  layer?: number;
  /** Null: a map of all heads of a layer. */
  head?: number | null;
  /** Base64 of fixed-point numbers, row by row. */
  weights?: string;
  values?: Float32Array;
  vectors?: { queries: Float32Array[]; keys: Float32Array[] };
  terms?: Terms<(row: number, key: number) => number>;
  canvas?: HTMLCanvasElement;
  button?: HTMLButtonElement;
}

/** What a score is made of besides its products. */
interface Terms<Numbers> { factor: number; c?: Numbers; b?: Numbers }

/** Words of a text, and for each token the word that it is part of. */
interface Words { texts: string[]; ofToken: (number | null)[] }

interface TreeNode {
  parent: number | null;
  step: number;
  piece: string;
  logp: number;
  state: "kept" | "dropped" | "finished";
  score: number | null;
  /** Of a live page: the hypothesis with what was given before it. */
  text?: string;
}

interface Tree { beamSize: number; lengthPenalty: number; count: number; nodes?: TreeNode[]; path?: number[] }

interface Sentence {
  index: number;
  source: string;
  target: string;
  isForced: boolean;
  score: number | null;
  rank: number | null;
  isLive: boolean;
  isRecurrent: boolean;
  residual: number;
  largest: number;
  bits: number;
  sourcePieces: string[];
  targetPieces: string[];
  inputPieces: string[];
  sourceWords?: Words;
  targetWords?: Words;
  rare: number[];
  rareReason: string;
  links: [number, number][];
  heads: Head[];
  /** The number of the head that is shown first. */
  first: number;
  views?: Record<string, any>;
  search?: Tree;
  vectors?: Record<string, string>;
  terms?: Record<string, Terms<string>>;
  formulas?: string[];
  segment?: number;
  memory?: number;
  // Of a live page alone
  model?: ModelSummary;
  task?: string;
  next?: { positions: Position[] };
  off?: Set<string>;
  /** Tabs whose data are on their way. */
  awaits?: Set<string>;
}

/** The largest logits of a position, and the log of what all others sum to. */
interface Position { top: [string, number][]; rest: number | null }

interface ModelSummary {
  name: string;
  task: string;
  n_encoder_layers: number;
  n_decoder_layers: number;
  n_heads: number;
  n_key_heads: number;
  reads_images: boolean;
}

/** A name in plain words and what it means. */
interface Term { label: string; meaning: string }

interface PageData {
  model: ModelSummary | null;
  modelHash?: string;
  sentences: Sentence[];
  views?: Record<string, any>;
  /** The tab that is open at first. */
  tab?: string;
  weighting: { name: string; meaning: string; source: string; sums: string; residual: string; isOfLayers: boolean; isShare: boolean };
  conventions: string;
  kinds: Record<Kind, string>;
  metrics: Record<string, Term>;
  roles: Record<string, string>;
  terms: Record<string, Term>;
  ramps: Record<Theme, Record<Kind, string[]>>;
  hues: Record<Theme, string[]>;
}

/** A place in a map: a cell, a row or a column. */
interface Cell { row?: number; column?: number }

interface Link { row: number; column: number; weight: number; color: string; dash: string; shift: number }

interface Figure {
  svg: SVGSVGElement;
  cellAt(event: MouseEvent): Cell | null;
  mark(at: Cell | null): void;
}

interface FigureSpec {
  rows: string[];
  columns: string[];
  room: number;
  /** Size of all letters, in pixels, for a projector; and the height that the figure should have. */
  type?: number;
  height?: number;
}

interface Tab {
  id: string;
  title: string;
  holds(one: Sentence): boolean;
  show?(panel: HTMLElement, one: Sentence): void;
}

/** Elements of the page that are more than an element. */
interface Parts {
  sentence: HTMLSelectElement;
  filter: HTMLInputElement;
  least: HTMLInputElement;
  boost: HTMLInputElement;
  numbers: HTMLDetailsElement;
  about: HTMLDetailsElement;
  ramp: HTMLCanvasElement;
  metrics: HTMLTableElement;
  links: HTMLTableElement;
  theme: HTMLButtonElement;
  help: HTMLButtonElement;
  report: HTMLButtonElement;
}

type Child = Node | string;
