"use strict";

// Tables sort by the buttons in their headers: upwards first, then downwards.
const said = document.getElementById("said");

for (const button of document.querySelectorAll("th > button")) {
  button.addEventListener("click", () => sortBy(button));
}

function sortBy(button) {
  const header = button.parentElement;
  const table = header.closest("table");
  const upwards = header.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.querySelectorAll("th")) {
    other.removeAttribute("aria-sort");
  }
  header.setAttribute("aria-sort", upwards ? "ascending" : "descending");
  const numbers = header.classList.contains("number");
  const rows = Array.from(table.tBodies[0].rows);
  rows.sort((a, b) => compare(a.cells[header.cellIndex], b.cells[header.cellIndex], numbers, upwards));
  table.tBodies[0].append(...rows);
  said.textContent = `${table.caption.textContent}: sorted by ${button.textContent}, ${
    upwards ? "lowest" : "highest"
  } first`;
}

function compare(a, b, numbers, upwards) {
  const sign = upwards ? 1 : -1;
  if (!numbers) {
    return sign * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
  }
  const [left, right] = [a.dataset.value, b.dataset.value];
  if (left === undefined || right === undefined) {
    return (left === undefined) - (right === undefined);
  }
  return sign * (left - right);
}
