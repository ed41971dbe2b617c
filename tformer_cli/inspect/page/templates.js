// Tabs of views without a script: templates hold what people read of a sentence, or of the model.

const templates = [...document.querySelectorAll("template")];

/**
 * The templates of a view that are about a sentence, or about the whole model.
 *
 * @param {string} id
 * @param {Sentence} one
 */
function templatesOf(id, one) {
  const places = ["", String(data.sentences.indexOf(one))];
  return templates.filter(({ dataset }) => dataset.view === id && places.includes(dataset.sentence));
}

for (const id of new Set(templates.map(({ dataset }) => dataset.view))) {
  addTab({
    id,
    title: templates.find(({ dataset }) => dataset.view === id).dataset.title,
    holds: one => templatesOf(id, one).length > 0,
    show: (panel, one) => panel.append(...templatesOf(id, one).map(({ content }) => card("", content.cloneNode(true)))),
  });
}
