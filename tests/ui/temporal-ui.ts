/**
 * The Temporal Web UI as a person uses it: found by roles and visible texts only, so that a test proves what can be seen and
 * clicked. Nothing here waits for a fixed time; Playwright waits until an element is there, visible and at rest.
 */
import type { Locator, Page } from 'playwright-core';

export interface RunForm {
  readonly workflowId: string;
  readonly input: unknown;
}

export class TemporalUi {
  readonly page: Page;
  readonly #url: string;
  readonly #main: Locator;

  /** `url`: address of the UI's server. */
  constructor(page: Page, url: string) {
    this.page = page;
    this.#url = `${url}/namespaces/default/workflows`;
    this.#main = page.getByRole('main');
  }

  get main(): Locator {
    return this.#main;
  }

  /** Fills the start form as the README says. */
  async fillStartForm({ workflowId, input }: RunForm): Promise<void> {
    await this.page.goto(this.#url);
    await this.#main.getByRole('link', { name: 'Start Workflow', exact: true }).click();
    await this.#main.getByRole('textbox', { name: 'Workflow ID' }).fill(workflowId);
    await this.#main.getByRole('textbox', { name: 'Task Queue' }).fill('terminal-rsi');
    await this.#main.getByRole('textbox', { name: 'Workflow Type' }).fill('trainingRun');
    await this.#typeJson(this.#main, input);
    // The form looks up whether anyone polls the queue, and grows by the answer.
    await this.#main.getByText('Task Queue is Active').waitFor();
  }

  /** Starts a run from the form and opens its page by the link of the message that says so. */
  async start(form: RunForm): Promise<void> {
    await this.fillStartForm(form);
    await this.#main.getByRole('button', { name: 'Start Workflow', exact: true }).click();
    await this.page.getByRole('link', { name: 'Workflow started successfully' }).click();
    await this.title(form.workflowId).waitFor();
  }

  /** A run's page, on its timeline. */
  async open(workflowId: string): Promise<void> {
    await this.page.goto(`${this.#url}/${encodeURIComponent(workflowId)}`);
    await this.title(workflowId).waitFor();
  }

  title(workflowId: string): Locator {
    return this.#main.getByRole('heading', { level: 1 }).getByText(workflowId, { exact: true });
  }

  /** The badge beside the title: Running, Completed, Failed, Canceled. */
  status(name: string): Locator {
    return this.#main.getByRole('status').getByText(name, { exact: true }).first();
  }

  async tab(name: 'Timeline' | 'User Metadata' | 'Search Attributes'): Promise<void> {
    await this.page.getByRole('tab', { name, exact: true }).click();
  }

  /** The JSON that the timeline shows beside each other: what the run was given, and what it came to. */
  payload(name: 'Input' | 'Result' | 'Search Attributes'): Locator {
    return this.#main.getByRole('textbox', { name, exact: true });
  }

  /** A row of the timeline: an activity with its summary, a child by its summary, a message by its name. */
  timelineRow(text: string | RegExp): Locator {
    return this.#main.getByRole('list').getByRole('button').filter({ hasText: text });
  }

  /**
   * The rendered Markdown of the tab *User Metadata*, refreshed with the key R until it holds `text`, as the page tells a person to.
   * @param patienceMs how long the run may take to come there
   */
  async currentDetails(text: string | RegExp, patienceMs: number): Promise<Locator> {
    await this.tab('User Metadata');
    const details = this.#main.frameLocator('iframe[title="output"]').last().locator('body');
    const wanted = details.filter({ hasText: text });
    for (const deadline = Date.now() + patienceMs; ;) {
      await this.page.keyboard.press('r');
      const seen = await wanted.waitFor({ timeout: 1_500 }).then(
        () => true,
        () => false,
      );
      if (seen) return details;
      if (Date.now() > deadline) throw new Error(`current details, expected ${String(text)}, got:\n${await details.innerText()}`);
    }
  }

  /** Sends a signal or an update from the menu of the run's page. The dialog closes when it was taken. */
  async send(kind: 'Signal' | 'Update', name: string, argument?: unknown): Promise<void> {
    const dialog = await this.#submit(kind, name, argument);
    await dialog.waitFor({ state: 'hidden' });
  }

  /** Sends what will be refused: waits until the dialog shows `reason`, and leaves it. */
  async sendRefused(kind: 'Signal' | 'Update', name: string, argument: unknown, reason: string): Promise<void> {
    const dialog = await this.#submit(kind, name, argument);
    await dialog.getByText(reason, { exact: true }).waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).last().click();
    await dialog.waitFor({ state: 'hidden' });
  }

  async #submit(kind: 'Signal' | 'Update', name: string, argument: unknown): Promise<Locator> {
    const item = kind === 'Signal' ? 'Send a Signal' : 'Send an Update';
    await this.#main.getByRole('button', { name: 'More Actions' }).click();
    await this.page.getByRole('menuitem', { name: item }).click();
    const dialog = this.page.getByRole('dialog', { name: item });
    await dialog.getByRole('button', { name: kind === 'Signal' ? 'Select a signal' : 'Select an Update' }).click();
    await dialog.getByRole('option', { name: new RegExp(`^${name} `) }).click();
    if (argument !== undefined) await this.#typeJson(dialog, argument);
    await dialog.getByRole('button', { name: 'Submit' }).click();
    return dialog;
  }

  /** Filters the list of workflows by a search attribute, with the menu *Add Filter*. */
  async filter(attribute: string, value: string): Promise<void> {
    await this.page.goto(this.#url);
    await this.#main.getByRole('button', { name: 'Add Filter' }).click();
    await this.page.getByRole('menuitem', { name: 'Search' }).getByRole('textbox').fill(attribute);
    await this.page.getByRole('menuitem', { name: new RegExp(`^${attribute} `) }).click();
    await this.page.getByPlaceholder('Enter value').fill(value);
    await this.page.getByRole('button', { name: 'Apply' }).click();
  }

  /** The list of workflows with a query, as a link or a saved view has it. */
  async search(query: string): Promise<void> {
    await this.page.goto(`${this.#url}?query=${encodeURIComponent(query)}`);
  }

  /** The link of a workflow in the list. */
  listed(workflowId: string): Locator {
    return this.#main.getByRole('table').getByRole('link', { name: workflowId, exact: true });
  }

  /** Adds columns for search attributes to the list, and takes others away. */
  async columns(add: readonly string[], remove: readonly string[]): Promise<void> {
    await this.#main.getByRole('button', { name: 'Configure Columns' }).click();
    for (const name of remove) await this.page.getByRole('button', { name: `Remove ${name} column` }).click();
    for (const name of add) await this.page.getByRole('button', { name: `Add ${name} column` }).click();
    await this.page.getByRole('button', { name: 'Close Workflows Table configuration' }).click();
  }

  /** Replaces the text of the JSON editor in `place`. Written as the editor would format it: otherwise the click after it moves the button. */
  async #typeJson(place: Locator, value: unknown): Promise<void> {
    await place.getByRole('textbox', { name: 'Data' }).click();
    await this.page.keyboard.press('ControlOrMeta+a');
    await this.page.keyboard.insertText(JSON.stringify(value, null, 2));
  }
}
