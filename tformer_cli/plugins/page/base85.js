// Bytes as text with a quarter more letters, where base64 has a third more.

// Those of RFC 1924, but "," for "<", which would begin a tag
const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
const VALUES = Uint8Array.from({ length: 128 }, (_, code) => Math.max(0, LETTERS.indexOf(String.fromCharCode(code))));

/** Reads the bytes of a text: four of five letters, a number to the base 85; missing ones are the last letter. */
export function readBase85(text) {
  const view = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  for (let at = 0; at < text.length; at += 5) {
    let number = 0;
    for (let n = at; n < at + 5; n++) number = 85 * number + (n < text.length ? VALUES[text.charCodeAt(n)] : 84);
    view.setUint32(4 * at / 5, number);
  }
  return new Uint8Array(view.buffer, 0, Math.floor(4 * text.length / 5));
}
