// Measures a page that is laid out; returns what a person would complain about.
(() => {
  const told = [];
  const say = (what, element, more) =>
    told.push(`${what}: ${(element.textContent || element.tagName).trim().slice(0, 60)} ${more || ''}`);
  const shown = (element) => element.checkVisibility() && element.getClientRects().length > 0;
  const width = document.documentElement.clientWidth;

  if (document.documentElement.scrollWidth > width)
    told.push(`page is ${document.documentElement.scrollWidth} wide in ${width}`);
  for (const element of document.querySelectorAll('body *')) {
    if (!shown(element) || element.closest('svg') || element.closest('.unseen')) continue;
    const box = element.getBoundingClientRect();
    const inside = element.parentElement.closest('.scroll');
    if (!inside && (box.right > width + 0.5 || box.left < -0.5)) say('leaves the page', element);
    const scrolls = getComputedStyle(element).overflowX === 'auto';
    if (!scrolls && !inside && element.clientWidth && element.scrollWidth > element.clientWidth + 1
        && getComputedStyle(element).display !== 'inline')
      say('is wider than its box', element, `${element.scrollWidth} > ${element.clientWidth}`);
  }

  for (const svg of document.querySelectorAll('svg')) {
    if (!shown(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].filter((text) => text.textContent.trim());
    const boxes = texts.map((text) => {
      const box = text.getBoundingClientRect();
      // A line box is taller than its letters.
      const trim = box.height * 0.17;
      return { left: box.left, right: box.right, top: box.top + trim, bottom: box.bottom - trim };
    });
    boxes.forEach((box, at) => {
      if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5
          || box.top < frame.top - 0.5 || box.bottom > frame.bottom + 0.5)
        say('text leaves its figure', texts[at], svg.getAttribute('aria-label').slice(0, 40));
      for (let other = at + 1; other < boxes.length; other++) {
        const two = boxes[other];
        if (Math.min(box.right, two.right) - Math.max(box.left, two.left) > 0.5
            && Math.min(box.bottom, two.bottom) - Math.max(box.top, two.top) > 0.5)
          say('texts overlap', texts[at], `and ${texts[other].textContent.trim()}`);
      }
    });
  }

  const rgb = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    return { colour: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1 };
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, two) => {
    const [high, low] = [light(one), light(two)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const paper = rgb(getComputedStyle(document.body).backgroundColor).colour;
  const behind = (element, box) => {
    const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
    const stack = document.elementsFromPoint(x, y);
    if (!stack.includes(element)) return paper;
    for (const under of stack.slice(stack.indexOf(element) + 1)) {
      const style = getComputedStyle(under);
      if (under.closest('svg') && under.tagName !== 'svg') {
        if (under.tagName === 'text' || style.fill === 'none') continue;
        return rgb(style.fill).colour;
      }
      if (style.backgroundColor && rgb(style.backgroundColor).alpha === 1)
        return rgb(style.backgroundColor).colour;
    }
    return paper;
  };
  let measured = 0;
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !shown(element) || element.closest('.unseen')) continue;
    const style = getComputedStyle(element);
    const colour = rgb(element.closest('svg') ? style.fill : style.color).colour;
    const ratio = contrast(colour, behind(element, element.getBoundingClientRect()));
    measured += 1;
    if (ratio < 4.5) say('too little contrast', element, ratio.toFixed(2));
  }
  return { told: [...new Set(told)], measured, figures: document.querySelectorAll('svg').length };
})()
