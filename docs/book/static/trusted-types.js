// Lets the search write titles and read pages where a page's policy asks for trusted types. Nothing that is written can run:
// the same policy allows scripts of the node's own files alone.
if (window.trustedTypes) {
  trustedTypes.createPolicy("default", { createHTML: (text) => text });
}
